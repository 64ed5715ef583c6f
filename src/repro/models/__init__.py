"""The study's own models: the architectures of the papers at sizes that a laptop or one GPU can train.

>>> f"{SIZES['gpt2-xl'].parameters:,}"
'1,557,611,200'
"""

from repro.models.gpt2_mini import gpt2_mini, load_causal_lm, parameters
from repro.models.roberta_mini import load_masked_lm, roberta_mini, roberta_parameters
from repro.models.saving import load_model, save_model

save_causal_lm = save_model  # the counterpart of `load_causal_lm`

_WHERE = {"Decoder": "decoder", "DecoderConfig": "decoder", "longformer_patterns": "decoder",
          "TDMCA": "tdmca", "TDMCAConfig": "tdmca", "Experts": "experts",
          "OneText": "summarisers", "Pretrained": "summarisers", "EncoderDecoder": "summarisers",
          "EncoderDecoderConfig": "summarisers",
          "Seq2Seq": "summarisers", "Seq2SeqConfig": "summarisers",
          "Encoder": "encoder", "EncoderConfig": "encoder", "classifier_patterns": "encoder",
          "GPT": "gpt", "GPTConfig": "gpt", "SIZES": "gpt", "LSTM": "lstm", "LSTMConfig": "lstm",
          "TaskModel": "tasks", "answers": "tasks", "collate": "tasks", "encode_example": "tasks", "labelled": "tasks",
          "Coreference": "coreference", "LED": "led", "Longformer": "longformer", "longformer_from": "longformer",
          "SparseConfig": "sparse", "SparseTransformer": "sparse", "integrated": "sparse", "sample": "sparse",
          "measured_field": "receptive", "receptive_field": "receptive"}

__all__ = ["gpt2_mini", "load_causal_lm", "load_masked_lm", "load_model", "parameters", "roberta_mini",
           "roberta_parameters", "save_causal_lm", "save_model", *_WHERE]


def __getattr__(name: str):  # names that need torch are imported on first use
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)

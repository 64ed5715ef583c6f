"""The models of the campaign of other projects' tests: small ones, with the inputs that transformers' tests read.

transformers keeps such definitions in its repository only; these are ours. Its test cases come from its source package.
"""

import inspect
import unittest
from contextlib import contextmanager
from copy import copy
from unittest import mock

import torch
import transformers
from transformers import AttentionInterface, CompileConfig, PreTrainedModel
from transformers.models.led import modeling_led
from transformers.models.longformer import modeling_longformer

from repro.attention import LongformerSelfAttention, register

BATCH, N, LAYERS, WIDTH, HEADS, VOCABULARY = 4, 16, 2, 32, 2, 99
DECODER = {"num_hidden_layers": LAYERS, "hidden_size": WIDTH, "intermediate_size": 37, "num_attention_heads": HEADS,
           "num_key_value_heads": 1, "head_dim": WIDTH // HEADS, "vocab_size": VOCABULARY, "pad_token_id": 0,
           "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 128}
WIDE = 64  # a window longer than any text of a test
MIXED = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 5}
ENCODER = {**DECODER, "cls_token_id": 1, "sep_token_id": 2}
MODELS = {  # name: (config, classes, our attention, its settings)
    "GPT-2": ("GPT2Config", ["GPT2Model", "GPT2LMHeadModel", "GPT2ForSequenceClassification"], "repro_full",
              {"n_layer": LAYERS, "n_embd": WIDTH, "n_head": HEADS, "n_positions": 128, "num_key_value_heads": HEADS}),
    "Llama": ("LlamaConfig", ["LlamaModel", "LlamaForCausalLM", "LlamaForSequenceClassification"], "repro_full", {}),
    "Mistral": ("MistralConfig", ["MistralModel", "MistralForCausalLM"], "repro_sliding", {"sliding_window": 5}),
    "Gemma 3": ("Gemma3TextConfig", ["Gemma3TextModel", "Gemma3ForCausalLM"], "repro_sliding",
                {**MIXED, "query_pre_attn_scalar": 16}),
    "Qwen 3": ("Qwen3Config", ["Qwen3Model", "Qwen3ForCausalLM"], "repro_sliding",
               {"use_sliding_window": True, **MIXED}),
    "ModernBERT": ("ModernBertConfig", ["ModernBertModel", "ModernBertForMaskedLM"], "repro_sliding",
                   {"layer_types": MIXED["layer_types"], "local_attention": 6}),
    "Longformer": ("LongformerConfig", ["LongformerModel", "LongformerForMaskedLM"], None, {"attention_window": 4}),
    "LED": ("LEDConfig", ["LEDModel", "LEDForConditionalGeneration"], None,
            {"d_model": WIDTH, "encoder_layers": LAYERS, "decoder_layers": LAYERS, "encoder_attention_heads": HEADS,
             "decoder_attention_heads": HEADS, "num_key_value_heads": HEADS, "encoder_ffn_dim": 37,
             "decoder_ffn_dim": 37, "attention_window": 4,
             "max_encoder_position_embeddings": 128, "max_decoder_position_embeddings": 128}),
}
KINDS = {  # of cases: how the names of their tests begin
    "outputs as eager attention": ("test_eager_matches_sdpa", "test_batching_equivalence", "test_determinism",
                                   "test_inputs_embeds", "test_model_outputs_equivalence", "test_hidden_states_output"),
    "attention probabilities": ("test_attention_outputs", "test_retain_grad", "test_sliding_window_mask"),
    "training": ("test_training", "test_torch_compile_for_training", "test_causal_lm_loss", "test_encoder_decoder_loss",
                 "test_enable_input_require_grads"),
    "generation as eager attention": ("test_generates_",),
    "loading and choosing": ("test_sdpa_can_dispatch_non", "test_can_set_attention_dynamically", "test_save_load",
                             "test_can_be_initialized_on_meta", "test_torch_save_load",
                             "test_can_load_with_device", "test_can_capture_specific"),
}
PROBABILITIES = KINDS["attention probabilities"]  # tests that ask for eager attention only for its probabilities


GENERATED = 12  # tokens, so that windows of 5 slide past the prompt
WAYS = {  # of generating: settings of `generate`
    "greedy": {}, "beams": {"num_beams": 3, "num_return_sequences": 2}, "sampling": {"do_sample": True},
    "without_a_cache": {"use_cache": False}, "static_cache": {"cache_implementation": "static"},
    "static_cache_and_beams": {"cache_implementation": "static", "num_beams": 2},
    "prompt_lookup": {"prompt_lookup_num_tokens": 3}, "an_assistant": {}, "embeddings": {}, "a_cache_continued": {},
    "a_static_cache_compiled": {"cache_implementation": "static"},
}


class Generation:
    """Our tests: each way to generate against eager attention, with windows that slide and padding on the left."""

    def generates(self, way: str) -> None:
        torch.manual_seed(0)
        config, inputs = self.model_tester.prepare_config_and_inputs_for_common()
        config.eos_token_id = None
        model = self.all_model_classes[1](config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(8 if parameter.ndim > 1 else 1)  # else all tokens are equally likely
        ids = inputs["input_ids"][:1 if way in ("prompt_lookup", "an_assistant") else 2]
        real = torch.ones_like(ids)
        real[-1, :3] = len(ids) == 1  # rows of a batch begin with padding
        found = []
        for attention in "eager", self.attention:
            torch.manual_seed(1)
            model.set_attn_implementation(attention)
            found.append(self.generated(model, way, ids, real))
        self.assertEqual(*(one.sequences.tolist() for one in found))
        for one, other in zip(*(one.logits for one in found), strict=True):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)

    def generated(self, model, way: str, ids, real):
        settings = WAYS[way] | {"max_new_tokens": GENERATED, "return_dict_in_generate": True, "output_logits": True}
        named = {"input_ids": ids, "attention_mask": real}
        if way == "embeddings":
            named = {"inputs_embeds": model.get_input_embeddings()(ids), "attention_mask": real}
        elif way == "an_assistant":
            settings["assistant_model"] = model
        elif way == "a_cache_continued":
            first = model.generate(**named, **settings)
            named = {"input_ids": first.sequences, "past_key_values": first.past_key_values,
                     "attention_mask": torch.cat([real, real.new_ones(len(ids), GENERATED)], 1)}
        elif "compiled" in way:
            torch._dynamo.reset()
            with mock.patch.object(model, "forward", torch.compile(model.forward, backend="aot_eager", fullgraph=True)):
                return model.generate(**named, **settings)
        return model.generate(**named, **settings)


for _way in WAYS:
    setattr(Generation, f"test_generates_{_way}", lambda self, way=_way: self.generates(way))


class Tester:
    """What transformers' tests ask of a model: its sizes, a config and inputs."""

    is_training, batch_size, seq_length, encoder_seq_length, decoder_seq_length = True, BATCH, N, N, N
    num_hidden_layers, hidden_size, num_attention_heads, vocab_size = LAYERS, WIDTH, HEADS, VOCABULARY

    def __init__(self, name: str, wide: bool):
        self.name, self.wide, self.causal_lm_class = name, wide, getattr(transformers, MODELS[name][1][1])
        if name in ("Longformer", "LED"):  # their layers return the shares of a window, the own and one global token
            self.key_length = 4 + 2

    def get_config(self):
        config, _, _, settings = MODELS[self.name]
        settings = settings | ({"sliding_window": WIDE} if self.wide else {})
        return getattr(transformers, config)(**(ENCODER if self.name == "ModernBERT" else DECODER) | settings)

    def prepare_config_and_inputs_for_common(self):
        ids = torch.randint(3, VOCABULARY, (self.batch_size, N))
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        inputs["attention_mask"][0, -3:] = 0
        if self.name in ("Longformer", "LED"):
            inputs["global_attention_mask"] = torch.zeros_like(ids)
            inputs["global_attention_mask"][:, 0] = 1
        if self.name == "LED":
            inputs |= {"decoder_input_ids": ids, "decoder_attention_mask": torch.ones_like(ids)}
        return self.get_config(), inputs


def cases(name: str, *mixins: type, wide: bool = False) -> type[unittest.TestCase]:
    """The test case of a model with the tests of these mixins; `wide` makes its windows longer than each text."""
    _, classes, attention, _ = MODELS[name]
    classes = tuple(getattr(transformers, one) for one in classes)
    if not any(one.can_generate() for one in classes):  # else its tests of generation would pass without a model
        mixins = mixins[:-1]
    elif attention:
        mixins = *mixins, Generation

    def set_up(self):
        self.model_tester = Tester(name, wide)
        config = CompileConfig(backend="aot_eager", mode="default")  # see `compiled`
        settings = mock.patch.object(PreTrainedModel, "_default_compile_config", lambda _: copy(config))
        settings.start()
        self.addCleanup(settings.stop)

    def compiled(self):  # theirs wants a GPU and a compiler of C; tracing into one graph and its gradients need neither
        torch._dynamo.reset()
        compiled = torch.compile
        with mock.patch("torch.compile", lambda model, **_: compiled(model, fullgraph=True, backend="aot_eager")):
            inspect.unwrap(mixins[0].test_torch_compile_for_training)(self)

    def shares(self, attentions, batch_size, config, prompt_length):  # in place of theirs, which expects every key
        shape = batch_size, config.num_attention_heads, prompt_length, self.model_tester.key_length
        self.assertEqual([tuple(one.shape) for one in attentions], [shape] * len(attentions))

    return type(name, (*mixins, unittest.TestCase), ({"_check_encoder_attention_for_generate": shares}
                                                     if name == "LED" else {}) | {
        "setUp": set_up, "all_model_classes": classes, "is_encoder_decoder": name == "LED",
        "test_resize_embeddings": False, "attention": "sdpa", "probabilities": "eager",
        "test_torch_compile_for_training": compiled, "_torch_compile_train_cls": attention and classes[1]})


@contextmanager
def ours(case: unittest.TestCase, name: str):
    """Our attention in all models that are made meanwhile, also where a test names none, or eager for probabilities.

    Yields a list that grows with each call of it outside compiled graphs.
    """
    register()
    calls = []
    case.attention = attention = MODELS[name][2]
    if attention is None:
        with (_layers(modeling_longformer, "LongformerSelfAttention", calls),
              _layers(modeling_led, "LEDEncoderSelfAttention", calls)):
            yield calls
        return
    case.probabilities = attention
    function, original = AttentionInterface()[attention], PreTrainedModel.get_correct_attn_implementation
    replaced = (None, "eager") if case._testMethodName.startswith(PROBABILITIES) else (None,)

    def counted(*arguments, **named):
        if not torch.compiler.is_compiling():
            calls.append(attention)
        return function(*arguments, **named)

    def chosen(model, requested, *arguments, **named):
        return original(model, attention if requested in replaced else requested, *arguments, **named)

    AttentionInterface.register(attention, counted)
    PreTrainedModel.get_correct_attn_implementation = chosen
    try:
        yield calls
    finally:
        PreTrainedModel.get_correct_attn_implementation = original
        AttentionInterface.register(attention, function)


@contextmanager
def _layers(module, name: str, calls: list):
    """Our layer in place of one that computes its attention by itself; notes its calls."""
    theirs = getattr(module, name)

    def made(*arguments, **named):
        layer = LongformerSelfAttention.from_transformers(theirs(*arguments, **named))
        layer.register_forward_pre_hook(lambda *_: calls.append(name))
        return layer

    setattr(module, name, made)
    try:
        yield
    finally:
        setattr(module, name, theirs)

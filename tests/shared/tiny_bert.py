"""A tiny BERT with random weights and a tokenizer of its kind, as a fetched model's folder."""

from pathlib import Path

from repro.models.pretrained import MANIFEST, write_manifest


def folder(here: Path, words: list[str], **sizes):
    """Write the folder of a fetched BertModel of four layers of width 16 that knows these words; return the model."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel

    names = dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", ".", "?", ",", *words])
    vocabulary = {name: k for k, name in enumerate(names)}
    coder = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    coder.normalizer, coder.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    coder.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    coder.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    coder.enable_truncation(9)  # as in a published file
    torch.manual_seed(0)
    made = BertModel(BertConfig(vocab_size=len(vocabulary), **{
        "hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 64,
        "max_position_embeddings": 100} | sizes)).eval()
    made.save_pretrained(here)
    coder.save(str(here / "tokenizer.json"))
    (here / MANIFEST).unlink(missing_ok=True)
    write_manifest(here, {"name": here.name})
    return made

"""A tiny Gemma 3 with random weights, a tokenizer of its kind, the GGUF file of both, and packages with files."""

import json
import zipfile

TEXTS = ["The cat sat on the mat, and the other cat sat there, too.\n\nThe cats sat.\n  Indented, with café and naïve.",
         "It is the best of times; it was the worst of times.\n\n\nThe end — “quoted” … and more.\n", " a\tb  c   d"]
SPECIAL = ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>")
ADDED = ("\n", "\n\n", "\n\n\n", "<b>")  # found before any merge, as in Gemma


def tokenizer(texts=TEXTS, vocab_size=400):
    """A backend of `tokenizers` as Gemma's: ▁ for blanks, bytes for unknown characters, several merges for a token."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Replace(" ", "▁")
    trained.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    trained.train_from_iterator([text.replace("\n", " ") for text in texts], trainers.BpeTrainer(
        vocab_size=vocab_size - 300, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    letters, made = [], []
    for name in sorted(model["vocab"], key=model["vocab"].get):
        (letters if len(name) == 1 else made).append(name)
    names = [*SPECIAL, *ADDED, *(f"<0x{k:02X}>" for k in range(256)), *made, *letters]
    known = {*made, *letters}
    pairs = [(name[:k], name[k:]) for name in made for k in range(1, len(name))]
    added = [{"id": k, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": name in SPECIAL} for k, name in enumerate((*SPECIAL, *ADDED))]
    bos = {"SpecialToken": {"id": "<bos>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    return Tokenizer.from_str(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                          "invert": False},
        "post_processor": {"type": "TemplateProcessing", "single": bos, "pair": bos, "special_tokens": {
            "<bos>": {"id": "<bos>", "ids": [2], "tokens": ["<bos>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}]},
        "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
                  "vocab": {name: k for k, name in enumerate(names)},
                  "merges": [pair for pair in pairs if known.issuperset(pair)]}}))


def model(vocab_size):
    """A Gemma3ForCausalLM of two layers of width 16, one of them with a window of 8, with telling random weights."""
    import torch
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    made = Gemma3ForCausalLM(Gemma3TextConfig(
        vocab_size=vocab_size, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, query_pre_attn_scalar=8, sliding_window=8, max_position_embeddings=128,
        layer_types=["sliding_attention", "full_attention"], pad_token_id=0, eos_token_id=1, bos_token_id=2)).eval()
    generator = torch.Generator().manual_seed(0)
    for weight in made.parameters():
        weight.data = (torch.randn(weight.shape, generator=generator) * 0.3).bfloat16().float()
    return made


def folder(path):
    """Write both as a folder of transformers, as a published model lies; gives the model and the backend."""
    backend = tokenizer()
    made = model(backend.get_vocab_size())
    made.save_pretrained(path)
    backend.save(str(path / "tokenizer.json"))
    return made, backend


def gguf_file(path):
    """Write both as one GGUF file, not quantized, with the names that llama.cpp gives; gives model and backend."""
    from gguf import GGUFWriter

    backend = tokenizer()
    made = model(backend.get_vocab_size())
    config, names = made.config, sorted(backend.get_vocab(), key=backend.get_vocab().get)
    writer = GGUFWriter(path, "gemma3")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_sliding_window(config.sliding_window)
    writer.add_rope_freq_base(1e6)
    writer.add_vocab_size(len(names))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(names)
    writer.add_token_scores([-float(k) for k in range(len(names))])
    writer.add_token_types([3 if name in SPECIAL else 4 if name in ADDED else 6 if name.startswith("<0x") else 1
                            for name in names])
    for name, k in (("pad", 0), ("eos", 1), ("bos", 2), ("unk", 3)):
        getattr(writer, f"add_{name}_token_id")(k)
    parts = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
             "input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm",
             "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}
    for name, weight in made.state_dict().items():
        if name == "lm_head.weight":
            continue
        value = weight.numpy() + name.endswith("norm.weight")  # llama.cpp stores one plus a norm's gain
        new = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}.get(name)
        if new is None:
            _, _, layer, rest = name.split(".", 3)
            new = f"blk.{layer}.{parts[rest.removesuffix('.weight')]}.weight"
        writer.add_tensor(new, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return made, backend


def wheel(folder, name, files, version="1.0"):
    """Write a package with `files` (path: bytes) that pip can download from a folder; gives its path."""
    folder.mkdir(exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    path, about = folder / f"{stem}-py3-none-any.whl", f"{stem}.dist-info"
    with zipfile.ZipFile(path, "w") as made:
        for member, content in files.items():
            made.writestr(member, content)
        made.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        made.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr(f"{about}/RECORD", "")
    return path

"""Cut the vocabulary of a published model down to the tokens that given texts use.

Gemma 3 has 262,144 tokens; our texts need less than a third of them. Most of a training step goes into the logits,
so a model without the unused rows of its embedding trains faster. For these texts, the cut tokenizer gives the same
tokens, and the cut model's logits are some of the whole model's. It encodes other texts in smaller pieces. The softmax
is over fewer tokens, so the perplexity is lower: report both.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from repro.checkpoints import quietly, whole_folder
from repro.data import corpus
from repro.errors import ReproError, short
from repro.models import pretrained

STUDY_TEXTS = (("pg19-subset", "train", 60), ("pg19-subset", "validation", None), ("pg19-subset", "test", None),
               ("wikitext-103", "train", None), ("wikitext-103", "validation", None), ("wikitext-103", "test", None))
KEPT = "vocabulary.json"  # in the folder of a cut model: the old id of each of its tokens


def study_texts() -> Iterator[str]:
    """The texts that the study's cut model must be able to read: for each (corpus, split, n) of STUDY_TEXTS, the first
    n documents by name, or all. Raises ReproError for a corpus that is not here."""
    for name, split, n in STUDY_TEXTS:
        documents = corpus(name).stream(split)
        for document in documents if n is None else islice(sorted(documents, key=lambda one: one.id), n):
            yield document.text


def covers(name: str, split: str, n: int | None) -> bool:
    """Whether `study_texts` has the first `n` documents of a split, by name, or all of them (None).

    >>> covers("pg19-subset", "train", 60), covers("pg19-subset", "train", None), covers("wikitext-103", "train", None)
    (True, False, True)
    """
    return any((name, split) == (known, part) and (most is None or n is not None and n <= most)
               for known, part, most in STUDY_TEXTS)


def cut(source: Path | str, target: Path | str, texts: Iterable[str]) -> Path:
    """Write a model with the tokens that `texts` use, and its tokenizer, to folder `target`, and return it.

    source: the name or folder of a causal language model whose tokenizer does byte-pair encoding. target: appears
    complete or not at all. New ids keep the order of the old ones, which vocabulary.json lists. Raises ReproError for
    another kind of model or tokenizer, for texts that cannot be encoded, and for a full disk.
    """
    if isinstance(texts, str):
        raise ReproError("texts is one string; give a list of texts, such as [text].")
    here = pretrained.place(source)
    model, coder = pretrained.load(here, dtype="auto")
    tokenizer, size, target = json.loads(coder.backend.to_str()), coder.vocab_size, Path(target)
    configs = [one for one in (model.config, getattr(model, "generation_config", None)) if one]
    special = [k for config in configs for ids in _special(config).values()
               for k in (ids if isinstance(ids, list) else [ids])]
    if strange := [k for k in special if type(k) is not int or not 0 <= k < size]:
        raise ReproError(f"config.json of {here} names token {short(strange[0], 40)}, but its tokenizer has ids 0 to "
                         f"{size - 1}: it is the tokenizer of another model.")
    kept = kept_tokens(tokenizer, coder.used(texts), special)
    _keep_rows(model, kept)
    for config in configs:
        for key, ids in _special(config).items():
            new = [kept.index(k) for k in np.atleast_1d(ids)]
            setattr(config, key, new if isinstance(ids, list) else new[0])
    with whole_folder(target) as unfinished, quietly():
        model.save_pretrained(unfinished)
        (unfinished / "tokenizer.json").write_text(json.dumps(cut_tokenizer(tokenizer, kept), ensure_ascii=False))
        for name in ("tokenizer_config.json", pretrained.NOTE):
            if (here / name).is_file():
                (unfinished / name).write_text((here / name).read_text())
        (unfinished / KEPT).write_text(json.dumps({"whole": coder.fingerprint, "size": size, "ids": kept}))
        pretrained.write_manifest(unfinished, {"name": target.name, "source": f"{here.name}, {len(kept):,} of {size:,} "
                                               "tokens"})
    return target


def kept_tokens(tokenizer: dict[str, Any], used: Iterable[int], special: Iterable[int] = ()) -> list[int]:
    """The ids to keep, ascending: `used`, `special`, the byte tokens, and the intermediate tokens that merges make.

    tokenizer: a tokenizer.json of byte-pair encoding. No merge crosses the edge of a token of the result, so the same
    merges form it in a text and alone. Raises ReproError for another kind of tokenizer.
    """
    model = tokenizer["model"]
    if model.get("type") != "BPE":
        raise ReproError(f"the tokenizer is of type {model.get('type')}; only byte-pair encoding (BPE) can be cut.")
    ids = model["vocab"] | {one["content"]: one["id"] for one in tokenizer["added_tokens"]}
    names = {k: name for name, k in ids.items()}
    whole = {one["content"] for one in tokenizer["added_tokens"]}  # matched in a text before any merge
    put_around = defaultdict(int)  # its keys become the ids that `_renumbered` looks up
    _renumbered(tokenizer.get("post_processor"), put_around)
    kept = {names[int(k)] for k in (*used, *special, *put_around)}
    kept |= _bytes(model) | {name for name in [model.get("unk_token")] if name in ids}
    ranks = {pair: k for k, pair in enumerate(_pairs(model))}
    kept |= {part for name in kept - whole for part in _made_on_the_way(name, ranks)}
    return sorted(ids[name] for name in kept if name in ids)


def cut_tokenizer(tokenizer: dict[str, Any], kept: list[int]) -> dict[str, Any]:
    """A tokenizer.json with the tokens `kept`, as ids 0, 1, ... in this order, and the merges among them."""
    new = {old: k for k, old in enumerate(kept)}
    model = tokenizer["model"]
    names = {name: new[k] for name, k in sorted(model["vocab"].items(), key=lambda item: item[1]) if k in new}
    merges = [[first, second] for first, second in _pairs(model)
              if first in names and second in names and first + second in names]
    added = [one | {"id": new[one["id"]]} for one in tokenizer["added_tokens"] if one["id"] in new]
    return tokenizer | {"model": model | {"vocab": names, "merges": merges}, "added_tokens": added,
                        "post_processor": _renumbered(tokenizer.get("post_processor"), new)}


def _pairs(model: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The merges, in order; older files write each as one string."""
    for one in model["merges"]:
        first, second = one.split(" ") if isinstance(one, str) else one
        yield first, second


def _bytes(model: dict[str, Any]) -> set[str]:
    """The tokens of the 256 bytes: <0x00> and so on, or the letters of GPT-2's alphabet."""
    from tokenizers import pre_tokenizers

    if model.get("byte_fallback"):
        return {f"<0x{k:02X}>" for k in range(256)}
    letters = set(pre_tokenizers.ByteLevel.alphabet())
    return letters if letters <= model["vocab"].keys() else set()


def _made_on_the_way(name: str, ranks: dict[tuple[str, str], int]) -> set[str]:
    """The characters of a token, and the tokens that merges make of them, up to the token itself."""
    symbols, made = list(name), set(name)
    while len(symbols) > 1:
        rank, at = min((ranks.get(pair, len(ranks)), k)
                       for k, pair in enumerate(zip(symbols, symbols[1:], strict=False)))
        if rank == len(ranks):
            break
        symbols[at:at + 2] = [symbols[at] + symbols[at + 1]]
        made.add(symbols[at])
    return made


def _keep_rows(model: Any, kept: list[int]) -> None:
    """Cut the embedding and the output layer to the rows `kept`. Raises ReproError if others have a row per token."""
    from torch import nn

    size, output = model.config.vocab_size, model.get_output_embeddings()
    if output is None or output.bias is not None:
        raise ReproError(f"{type(model).__name__} has {'no output layer' if output is None else 'an output bias'}; "
                         "only a causal language model without one can be cut.")
    layers = model.get_input_embeddings(), output
    for layer in layers:
        layer.weight = nn.Parameter(layer.weight.detach()[kept].clone())
    layers[0].num_embeddings = output.out_features = model.config.vocab_size = len(kept)
    model.tie_weights()
    if more := [name for name, weight in model.named_parameters() if size in weight.shape[:1]]:
        raise ReproError(f"{more[0]} of {type(model).__name__} has a row for each token, too; it cannot be cut.")


def _special(config: Any) -> dict[str, Any]:
    """The ids that a config gives to tokens, such as bos_token_id: a number, or a list of them."""
    return {key: value for key, value in config.to_dict().items()
            if (key.endswith("_token_id") or key == "opening_token") and value is not None}


def _renumbered(part: Any, new: dict[int, int]) -> Any:
    """A post-processor with new ids: lists of ids under "ids", and [token, id] under "sep" and "cls"."""
    if isinstance(part, list):
        return [_renumbered(one, new) for one in part]
    if not isinstance(part, dict):
        return part
    return {key: [new[k] for k in value] if key == "ids" else [value[0], new[value[1]]] if key in ("sep", "cls")
            else _renumbered(value, new) for key, value in part.items()}

"""Cut the vocabulary of a published model down to the tokens that given texts use.

Gemma 3 has 262,144 tokens, and the study's texts use a tenth of them. Most of a training step goes into the logits, so
a model without the other rows of its embedding trains two to three times as fast. The cut model's tokenizer gives the
same tokens for these texts, and its logits are rows of the whole model's logits. Its softmax is over fewer tokens, so
perplexities are lower than the whole model's: report both.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from repro.checkpoints import quietly, whole_folder
from repro.data import Tokeniser, corpus
from repro.errors import ReproError
from repro.models.pretrained import NOTE, write_manifest

STUDY_TEXTS = (("pg19-subset", "train", 60), ("pg19-subset", "validation", None), ("pg19-subset", "test", None),
               ("wikitext-103", "train", None), ("wikitext-103", "validation", None), ("wikitext-103", "test", None))
KEPT = "vocabulary.json"  # of a cut folder: the old id of each of its tokens


def study_texts() -> Iterator[str]:
    """The texts that the study's cut model has to read: those of STUDY_TEXTS, (corpus, split, first documents by name).

    Raises ReproError for a corpus that is not here.
    """
    for name, split, n in STUDY_TEXTS:
        documents = corpus(name).stream(split)
        for document in documents if n is None else islice(sorted(documents, key=lambda one: one.id), n):
            yield document.text


def cut(source: Path | str, target: Path | str, texts: Iterable[str]) -> Path:
    """Write the model in folder `source` to folder `target`, with the tokens that `texts` use.

    source: the name or folder of a decoder with a tokenizer of byte-pair encoding. target is complete or absent.
    Returns it. Raises ReproError for a folder without such a model or tokenizer, for texts that cannot be encoded, and
    for a full disk.
    """
    import torch

    from repro.models.pretrained import folder, load

    here = Path(source) if Path(source).is_dir() else folder(str(source))
    model, coder = load(here, dtype="auto")
    told = json.loads(coder.backend.to_str())
    kept = kept_tokens(told, coder.used(texts), _special(model))
    rows = torch.tensor(kept)
    for layer in {id(one): one for one in (model.get_input_embeddings(), model.get_output_embeddings()) if one}.values():
        layer.weight = torch.nn.Parameter(layer.weight.detach()[rows].clone(), requires_grad=layer.weight.requires_grad)
        for size in ("num_embeddings", "out_features"):
            if hasattr(layer, size):
                setattr(layer, size, len(kept))
    model.tie_weights()
    new = {old: k for k, old in enumerate(kept)}
    for config in (model.config, model.generation_config):
        _renumber_config(config, new)
    model.config.vocab_size = len(kept)
    target = Path(target)
    with whole_folder(target) as unfinished, quietly():
        model.save_pretrained(unfinished)
        (unfinished / "tokenizer.json").write_text(json.dumps(cut_tokenizer(told, kept), ensure_ascii=False))
        for name in ("tokenizer_config.json", NOTE):
            if (here / name).is_file():
                (unfinished / name).write_text((here / name).read_text())
        (unfinished / KEPT).write_text(json.dumps({"whole": coder.fingerprint, "size": coder.vocab_size, "ids": kept}))
        write_manifest(unfinished, {"name": target.name, "source": f"{here.name}, {len(kept):,} of "
                                    f"{coder.vocab_size:,} tokens"})
    return target


def check_covered(folder: Path | str, whole: Tokeniser, texts: Iterable[str]) -> None:
    """Raise ReproError unless the cut model in a folder has every token that the `whole` tokenizer uses for `texts`.

    Other texts can be encoded too, from smaller pieces or bytes, but the model would read what the whole one does not.
    """
    told = json.loads((Path(folder) / KEPT).read_text())
    if told["whole"] != whole.fingerprint:
        raise ReproError(f"{folder} was cut from another tokenizer than {whole.name}; give the one it was cut from.")
    missing = np.setdiff1d(whole.used(texts), told["ids"])
    if len(missing):
        raise ReproError(f"{folder} lacks {len(missing)} tokens of these texts, the first of them "
                         f"{whole.backend.id_to_token(int(missing[0]))!r}; cut the model again with these texts, or "
                         "take the whole one.")


def kept_tokens(told: dict[str, Any], used: Iterable[int], special: Iterable[int] = ()) -> list[int]:
    """The ids to keep, ascending: `used`, `special`, those of bytes, and what merges make on the way to each.

    told: a tokenizer.json of byte-pair encoding. Merges never cross a finished token, so the merges that form a token
    in a text are those that form it alone. Raises ReproError for another kind of tokenizer.
    """
    model = told["model"]
    if model.get("type") != "BPE":
        raise ReproError(f"the tokenizer is of type {model.get('type')}; only one of type BPE can be cut.")
    ids, added = _ids(told), {one["content"] for one in told["added_tokens"]}
    names = {k: name for name, k in ids.items()}
    ranks = {pair: k for k, pair in enumerate(_pairs(model))}
    kept = {names[int(k)] for k in (*used, *special)} | _bytes(model)
    if model.get("unk_token"):
        kept.add(model["unk_token"])
    kept |= {part for name in kept - added for part in _made_on_the_way(name, ranks)}
    return sorted(ids[name] for name in kept if name in ids)


def cut_tokenizer(told: dict[str, Any], kept: list[int]) -> dict[str, Any]:
    """A tokenizer.json with the tokens `kept`, as ids 0, 1, ... in this order, and the merges among them."""
    new = {old: k for k, old in enumerate(kept)}
    model = told["model"]
    vocabulary = {name: new[k] for name, k in sorted(model["vocab"].items(), key=lambda item: item[1]) if k in new}
    merges = [[first, second] for first, second in _pairs(model)
              if first in vocabulary and second in vocabulary and first + second in vocabulary]
    added = [one | {"id": new[one["id"]]} for one in told["added_tokens"] if one["id"] in new]
    return told | {"model": model | {"vocab": vocabulary, "merges": merges}, "added_tokens": added,
                   "post_processor": _renumber_post(told.get("post_processor"), new)}


def _ids(told: dict[str, Any]) -> dict[str, int]:
    return told["model"]["vocab"] | {one["content"]: one["id"] for one in told["added_tokens"]}


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
    """The characters of a token, and what merges make of them until they are the token."""
    symbols, made = list(name), set(name)
    while len(symbols) > 1:
        rank, at = min((ranks.get(pair, len(ranks)), k) for k, pair in enumerate(zip(symbols, symbols[1:], strict=False)))
        if rank == len(ranks):
            break
        symbols[at:at + 2] = [symbols[at] + symbols[at + 1]]
        made.add(symbols[at])
    return made


def _special(model: Any) -> list[int]:
    """The ids of the tokens that a model's config names, such as bos_token_id."""
    found = [value for config in (model.config, model.generation_config) if config
             for key, value in config.to_dict().items() if key.endswith("_token_id") and value is not None]
    return sorted({k for value in found for k in (value if isinstance(value, list) else [value])})


def _renumber_config(config: Any, new: dict[int, int]) -> None:
    for key, value in config.to_dict().items() if config else ():
        if key.endswith("_token_id") and value is not None:
            setattr(config, key, [new[k] for k in value] if isinstance(value, list) else new[value])


def _renumber_post(told: Any, new: dict[int, int]) -> Any:
    """A post-processor with new ids: lists of ids under "ids", and [token, id] under "sep" and "cls"."""
    if isinstance(told, list):
        return [_renumber_post(one, new) for one in told]
    if not isinstance(told, dict):
        return told
    return {key: [new[k] for k in value] if key == "ids" else [value[0], new[value[1]]] if key in ("sep", "cls")
            else _renumber_post(value, new) for key, value in told.items()}

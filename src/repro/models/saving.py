"""Save any model to a folder and load it again, with one pair of functions.

A model of transformers, or one that extends it, is written as transformers writes it. For every other model of this
package, config.json holds the arguments of its class by name, and model.safetensors its weights.
"""

import copy
import inspect
import json
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from repro.checked import checked
from repro.checkpoints import named, quietly, read_config, reading, whole_folder
from repro.configs import plain
from repro.errors import ReproError, short, unknown
from repro.processes import is_first

WEIGHTS = ("fp32", "bf16")
KIND = "repro"  # the key under which config.json names the class
OWN = {"gpt2": "load_causal_lm", "roberta": "load_masked_lm", "longformer": "Longformer",
       "led": "LED"}  # by transformers' model type


def save_model(model, folder: str | Path, weights: str = "fp32") -> None:
    """Save a model of `repro.models`, `repro.recurrence` or transformers, for `load_model`; the folder appears
    complete or not at all.

    weights: "fp32", or "bf16", which rounds them and takes half the space. Under torchrun only the first process
    writes. Raises ReproError for another kind of model, a custom pattern among its settings, weights without a device,
    and a full disk; also if a file, a link or a folder of other files has that name. A RoBERTa of transformers does not
    load again if its vocabulary was resized with an untied output layer, because lm_head.bias keeps its old size; our
    Longformer does.

    >>> _ = save_model(gpt2_mini(n_layer=2, n_embd=8, n_head=2, vocab_size=9), folder / "base", weights="bf16")
    >>> sorted(file.name for file in (folder / "base").iterdir())
    ['config.json', 'generation_config.json', 'model.safetensors']
    >>> save_causal_lm is save_model
    True
    """
    if weights not in WEIGHTS:
        raise unknown("weights", weights, WEIGHTS)
    description = None if hasattr(model, "save_pretrained") else described(model)
    if any(weight.is_meta for weight in model.parameters()):
        raise ReproError(f"the weights of this {type(model).__name__} are on no device (meta); load them first.")
    if not is_first():
        return
    folder = named(folder)
    if folder.is_dir() and not folder.is_symlink() and any(folder.iterdir()) and not (folder / "config.json").exists():
        raise ReproError(f"{folder} holds files that are no model, which saving one there would delete; it was left as "
                         "it is. Give the name of a new folder.")
    kept = copy.deepcopy(model).bfloat16() if weights == "bf16" else model
    with whole_folder(folder) as unfinished, quietly():
        if description is None:
            kept.save_pretrained(unfinished)
        else:
            from safetensors.torch import save_model as save_weights

            unfinished.mkdir(parents=True)
            (unfinished / "config.json").write_text(json.dumps(description, indent=1) + "\n")
            save_weights(kept, str(unfinished / "model.safetensors"))


@checked
def load_model(folder: str | Path):
    """The model that `save_model` wrote, with fp32 weights, in evaluation mode.

    Raises ReproError if there is none, and for an unknown or damaged one.

    >>> model = GPT(GPTConfig(vocab_size=9, n_positions=64, n_layer=2, n_embd=8, n_head=2))
    >>> save_model(model, folder / "gpt")
    >>> load_model(folder / "gpt").config == model.config
    True
    """
    with reading(folder, "results/base"):
        if not (Path(folder) / "config.json").is_file():
            raise ReproError(f"{folder} has no config.json; give the folder of a model that `save_model` wrote.")
        description = read_config(folder)
        return _of_transformers(folder, description) if KIND not in description else _own(folder, description)


def _of_transformers(folder: str | Path, description: dict):
    from repro import models, recurrence

    named = (description.get("architectures") or [""])[0]
    if named in ("RecurrentLM", "MemoryLM", "RecurrentBert", "RecurrentRoberta"):
        return getattr(recurrence, named).from_pretrained(str(folder))
    if named.startswith(("Recurrent", "Memory")):  # another decoder
        return models.load_causal_lm(folder)
    if description.get("model_type") not in OWN:
        raise ReproError(f"{folder} is a checkpoint of {description.get('model_type')}; load it with transformers.")
    read = getattr(models, OWN[description["model_type"]])
    return getattr(read, "from_pretrained", read)(folder)


def _own(folder: str | Path, description: dict):
    from safetensors.torch import load_model as load_weights

    try:
        model = made(description)
        load_weights(model, str(Path(folder) / "model.safetensors"))
    except (AttributeError, KeyError, TypeError, RuntimeError) as error:
        raise ReproError(f"{folder} has no complete model of this version ({short(str(error))}); save it again."
                         ) from error
    return model.eval()


def described(value: Any) -> Any:
    """A model, config, pattern or plain value as JSON data; `made` is the inverse."""
    import torch
    from transformers import PreTrainedModel

    from repro.attention import Pattern

    value = plain(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.nn.Dropout):
        return value.p
    if isinstance(value, PreTrainedModel):
        return {KIND: type(value).__name__, "transformers": json.loads(value.config.to_json_string(use_diff=False))}
    if isinstance(value, Iterable) and not isinstance(value, torch.nn.Module):
        return [described(one) for one in value]
    kind = type(value)
    if _known(kind.__name__) is not kind:
        where = "repro.attention" if isinstance(value, Pattern) else "repro.models or transformers"
        raise ReproError(f"{kind.__name__} is not from {where}, so it could not be loaded again; save its "
                         "state_dict with torch.save instead.")
    names = [one.name for one in fields(kind) if one.init and one.compare] if is_dataclass(kind) else [
        name for name in inspect.signature(kind).parameters]
    given = getattr(value, "arguments", None) or {name: getattr(value, name) for name in names}
    return {KIND: kind.__name__} | {name: described(one) for name, one in given.items()}


def made(description: Any) -> Any:
    """The model, config, pattern or value that `described` describes."""
    if isinstance(description, list):
        return tuple(made(one) for one in description)
    if not isinstance(description, dict):
        return description
    if "transformers" in description:
        import transformers

        config = description["transformers"]
        return getattr(transformers, description[KIND])(transformers.AutoConfig.for_model(**config))
    kind = _known(description[KIND])
    if kind is None:
        raise ReproError(f"a saved model has a {description[KIND]}, which this version does not support.")
    given = {name: made(value) for name, value in description.items() if name != KIND}
    return kind(frozenset(given["patterns"])) if description[KIND] == "Intersection" else kind(**given)


def _known(name: str) -> type | None:
    """The public model, config or pattern of this name."""
    from repro import models
    from repro.attention import patterns

    found = getattr(patterns, name, None) if not name.startswith("_") else None
    found = getattr(models, name) if found is None and name in models.__all__ else found
    return found if inspect.isclass(found) and found.__module__.startswith("repro.") else None

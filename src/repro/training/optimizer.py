"""The optimisers, and which weights each of them changes."""

from torch import nn
from torch.optim import AdamW, Muon, Optimizer

from repro.errors import ReproError
from repro.training.config import TrainConfig


def matrices(module: nn.Module) -> list[nn.Parameter]:
    """The matrices of the blocks: the `weight` of every layer in an `nn.ModuleList` that has two dimensions and is no
    embedding, and the two matrices of an `nn.LSTM` in one, each of all its gates.

    A transformer keeps its blocks in such a list (`h` of GPT-2, `layer` of RoBERTa, `layers` of BART and of our
    Decoder). Not among them are therefore embeddings, positions and the output layer, tied or not, a recurrence module
    and a classifier; nor, inside a block, biases, norms and what is no layer's `weight` (u and v of our Decoder).
    """
    embeddings = {id(layer.weight) for layer in module.modules() if isinstance(layer, nn.Embedding)}
    blocks = [part for part in module.modules() if isinstance(part, nn.ModuleList)]
    weights = [weight for block in blocks for layer in block.modules()
               for name, weight in layer.named_parameters(recurse=False)
               if name == "weight" or isinstance(layer, nn.RNNBase)]
    found = {id(weight): weight for weight in weights if weight.ndim == 2}
    return [weight for key, weight in found.items() if key not in embeddings]


def optimizers(objective: nn.Module, config: TrainConfig) -> list[Optimizer]:
    """Those that together change every weight of `objective` once.

    "muon" (Jordan et al. 2024) makes the update of a matrix orthogonal, in bfloat16, and scales it to the size of one
    of AdamW's (Liu et al. 2025, section 2.2), so that learning rate and weight decay mean the same for both. A matrix
    stored transposed, as GPT-2 does, changes nothing. Raises ReproError for "muon" where there are no blocks.

    `module_learning_rate` is that of the weights that the objective's model calls its own, `added_parameters()`; they
    follow the same schedule. Raises ReproError for one where a model adds nothing.
    """
    together = {"lr": config.learning_rate, "weight_decay": config.weight_decay}
    if config.optimizer == "adamw":
        return [AdamW(_groups(list(objective.parameters()), objective, config), **together, fused=True)]
    chosen = matrices(objective)
    if not chosen:
        raise ReproError(f"optimizer is 'muon', but {type(objective).__name__} has no blocks (an nn.ModuleList) whose "
                         "matrices it could train; set optimizer='adamw'.")
    taken = {id(weight) for weight in chosen}
    rest = [weight for weight in objective.parameters() if id(weight) not in taken]
    return [Muon(chosen, **together, adjust_lr_fn="match_rms_adamw"),
            *([AdamW(_groups(rest, objective, config), **together, fused=True)] if rest else [])]


def _groups(weights: list[nn.Parameter], objective: nn.Module, config: TrainConfig) -> list:
    """The weights as torch takes them: all alike, or those that the model adds apart, at `times` the learning rate."""
    if config.module_learning_rate is None:
        return weights
    model = getattr(objective, "model", objective)
    added = {id(weight) for weight in model.added_parameters()} if hasattr(model, "added_parameters") else set()
    if not added:
        raise ReproError(f"module_learning_rate is {config.module_learning_rate:g}, but {type(model).__name__} adds no "
                         "weights to its base; leave it out.")
    return [{"params": [weight for weight in weights if id(weight) not in added]},
            {"params": [weight for weight in weights if id(weight) in added],
             "times": config.module_learning_rate / config.learning_rate}]

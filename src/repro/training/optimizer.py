"""The optimizers, and the weights that each of them updates."""

from torch import nn
from torch.optim import AdamW, Muon, Optimizer

from repro.errors import ReproError
from repro.training.config import TrainConfig


def matrices(module: nn.Module) -> list[nn.Parameter]:
    """The matrices of the blocks: the two-dimensional `weight` of every layer in an `nn.ModuleList` except embeddings,
    and the two matrices of an `nn.LSTM` in such a list, each of which serves all gates.

    A transformer keeps its blocks in such a list (`h` in GPT-2, `layer` in RoBERTa, `layers` in BART and our Decoder).
    This excludes embeddings, positions and the output layer, tied or not, a recurrence module and a classifier. Inside
    a block it excludes biases, norms and parameters that are not a layer's `weight` (u and v in our Decoder).
    """
    embeddings = {id(layer.weight) for layer in module.modules() if isinstance(layer, nn.Embedding)}
    blocks = [part for part in module.modules() if isinstance(part, nn.ModuleList)]
    weights = [weight for block in blocks for layer in block.modules()
               for name, weight in layer.named_parameters(recurse=False)
               if name == "weight" or isinstance(layer, nn.RNNBase)]
    found = {id(weight): weight for weight in weights if weight.ndim == 2}
    return [weight for key, weight in found.items() if key not in embeddings]


def vectors(module: nn.Module) -> list[nn.Parameter]:
    """The weights without weight decay: biases, the gains of norms and other vectors (Radford et al. 2018,
    section 4.1: "all non bias or gain weights" are decayed).

    One vector per head or expert also counts, although they are stored in two dimensions: `u` and `v` in our Decoder,
    and every weight with "bias" in its name. All other weights are matrices or embeddings.

    >>> block = nn.ModuleList([nn.Linear(3, 2), nn.LayerNorm(2), nn.Embedding(5, 2)])
    >>> [tuple(weight.shape) for weight in vectors(block)]
    [(2,), (2,), (2,)]
    """
    found = []
    for name, weight in module.named_parameters():
        own = name.rpartition(".")[2]
        if weight.ndim < 2 or "bias" in own or own in ("u", "v"):
            found.append(weight)
    return found


def optimizers(objective: nn.Module, config: TrainConfig) -> list[Optimizer]:
    """The optimizers that together update every weight of `objective` once.

    "muon" (Jordan et al. 2024) makes the update of a matrix orthogonal, in bfloat16. It scales the update to the size
    of one of AdamW's (Liu et al. 2025, section 2.2), so that learning rate and weight decay mean the same for both.
    Transposed storage, as in GPT-2, makes no difference. Raises ReproError for "muon" if there are no blocks.

    `weight_decay` is applied to matrices and embeddings, or to all weights if `decayed` is "all" (see `vectors`).
    `module_learning_rate` applies to the weights in the `added_parameters()` of the objective's model, with the same
    schedule. Raises ReproError if it is given and the model adds none.
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


def _groups(weights: list[nn.Parameter], objective: nn.Module, config: TrainConfig) -> list[dict]:
    """Parameter groups for torch: separate ones for the weights that the model adds, at `times` the learning rate, and
    for those without weight decay."""
    added: set[int] = set()
    if config.module_learning_rate is not None:
        model = getattr(objective, "model", objective)
        added = {id(weight) for weight in model.added_parameters()} if hasattr(model, "added_parameters") else added
        if not added:
            raise ReproError(f"module_learning_rate is {config.module_learning_rate:g}, but {type(model).__name__} "
                             "adds no weights to its base; leave it out.")
    spared = {id(weight) for weight in vectors(objective)} if config.spares_vectors else set()
    groups: dict[tuple[bool, bool], dict] = {}
    for weight in weights:
        key = id(weight) in added, id(weight) in spared
        options = ({"times": config.module_learning_rate / config.learning_rate} if key[0] else {}) | (
            {"weight_decay": 0.0} if key[1] else {})
        groups.setdefault(key, {"params": [], **options})["params"].append(weight)
    return [groups[key] for key in sorted(groups)]

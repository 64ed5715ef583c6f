"""Training losses.

An objective is a module that maps a batch to its mean loss. Its `settings()` list everything besides the weights that
determines the loss; training does not continue from a checkpoint with other settings.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from repro.checked import checked
from repro.errors import ReproError, check_number, check_whole, unknown
from repro.evaluation.checks import check_range, vocabulary_of
from repro.evaluation.scoring import check_decoder, states_and_head
from repro.loss import check_lm_weight, cross_entropy
from repro.recompute import RECOMPUTE
from repro.windows import check_window, context_of, same_shape, windows


@checked
class WindowedLM(nn.Module):
    """Mean negative log-likelihood per target, in nats, of token sequences (B, N + 1) read in windows.

    A batch is these sequences or, if some tokens are not targets, a mapping with `input_ids`, `labels` (-100: no
    target) and `n_targets`, as `Sequences` gives. The mean is then over the targets in all processes.

    model: a `RecurrentLM` (windows in order, gradients through all of them) or any other transformers causal language
    model (independent windows, all read at once). Both score every target exactly once.
    recompute, truncate: as in `RecurrentLM.forward`; they have no effect without recurrence.
    before: the number of first tokens in every sequence that are read but are not targets, as in `Sequences`.
    Raises ReproError for a window beyond the model's context, a model that is not causal, other settings out of range,
    and batches without targets or with ids outside the model's vocabulary.

    >>> from repro.models import gpt2_mini
    >>> model = gpt2_mini(n_layer=1, n_embd=8, n_head=2, vocab_size=9)
    >>> WindowedLM(model, window=6, overlap=2)(torch.arange(18)[None] % 9).ndim
    0
    """

    def __init__(self, model: nn.Module, window: int, overlap: int = 0, recompute: str = "none",
                 truncate: int | None = None, before: int = 0):
        super().__init__()
        check_decoder(model)
        check_window(window, overlap, context_of(model))
        check_whole(before, "before", 0, of="tokens")
        if recompute not in RECOMPUTE:
            raise unknown("recompute", recompute, RECOMPUTE)
        if truncate is not None:
            check_whole(truncate, "truncate", of="windows")
        self.model, self.window, self.overlap = model, window, overlap
        self.recompute, self.truncate, self.before = recompute, truncate, before

    def forward(self, batch: Tensor | Mapping[str, Tensor]) -> Tensor:
        tokens, labels, n = _predicted(batch, self.before)
        if tokens.device.type == "cpu":  # on a GPU, checking would delay each step, and CUDA fails anyway
            check_range(tokens, "the batch", vocabulary_of(self.model))
        if hasattr(self.model, "read_windows"):
            mean = self.model(tokens, self.window, self.overlap, labels=labels, recompute=self.recompute,
                              truncate=self.truncate, return_logits=False).loss
            return mean if labels is tokens else mean * ((labels[:, 1:] != -100).sum() / n)
        total = 0.0
        for same in same_shape(windows(tokens.shape[1], self.window, self.overlap)):
            inputs = tokens.unfold(1, same[0].stop - same[0].start, 1)[:, [w.start for w in same]].flatten(0, 1)
            targets = labels.unfold(1, same[0].n_scored, 1)[:, [w.first_target for w in same]].flatten()
            states, head = states_and_head(self.model, inputs)
            logits = states[:, same[0].offset:] if head is None else head(states[:, same[0].offset:])
            total = total + cross_entropy(logits.flatten(0, 1), targets)
        return total / n

    def settings(self) -> dict:
        """The windows, the truncation and the model's settings; recomputation does not change results."""
        return {"window": self.window, "overlap": self.overlap, "truncate": self.truncate,
                "model": model_settings(self.model)} | ({"before": self.before} if self.before else {})


@checked
class NextToken(nn.Module):
    """Mean negative log-likelihood per target, in nats, of token sequences (B, N + 1), each read as a whole.

    Takes the same batches as `WindowedLM`.
    model: maps token ids (B, N) to logits (B, N, V), such as `repro.models.Decoder`.

    >>> from repro.models import SparseConfig, SparseTransformer
    >>> model = SparseTransformer(SparseConfig(vocab_size=9, length=20, n_layer=1, n_head=2, n_embd=8))
    >>> loss = NextToken(model)(torch.arange(20)[None] % 9)
    >>> round(loss.exp().item(), 4)  # an output layer that starts at 0 guesses among 9
    9.0
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, batch: Tensor | Mapping[str, Tensor]) -> Tensor:
        tokens, labels, n = _predicted(batch)
        return cross_entropy(self.model(tokens[:, :-1]).flatten(0, 1), labels[:, 1:].flatten()) / n

    def settings(self) -> dict:
        """The model's settings."""
        return {"model": model_settings(self.model)}


@checked
class MaskedLM(nn.Module):
    """Mean negative log-likelihood per masked token, in nats, of batches from `repro.training.masked`, which may
    also mark global tokens for a Longformer (`global_attention_mask`).

    model: a transformers masked language model with RoBERTa's names, or a `repro.models.Longformer`. Its output layer
    is applied only to the predicted positions. Raises ReproError for texts longer than its positions.

    >>> import numpy as np
    >>> from repro.models import roberta_mini
    >>> model = roberta_mini(n_layer=1, n_embd=8, n_head=2, vocab_size=50)
    >>> batches = Masked(Sequences(np.arange(4, 204) % 40 + 4, length=20, batch_size=2), vocab_size=50)
    >>> MaskedLM(model)(batches.batch(0)).ndim
    0
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        if hasattr(self.model, "encode"):
            hidden = self.model.encode(batch["ids"], global_attention_mask=batch.get("global_attention_mask"))
        else:
            config, length = self.model.config, batch["ids"].shape[1]
            if length > (known := config.max_position_embeddings - config.pad_token_id - 1):
                raise ReproError(f"a text has {length} tokens, but this model has {known} positions; give it texts of "
                                 "at most that length.")
            hidden = self.model.base_model(input_ids=batch["ids"]).last_hidden_state
        states = hidden.gather(1, batch["positions"][..., None].expand(-1, -1, hidden.shape[-1]))
        targets = batch["targets"].flatten()
        return cross_entropy(self.model.lm_head(states).flatten(0, 1), targets) / (targets >= 0).sum().clamp(min=1)

    def settings(self) -> dict:
        """The model's settings."""
        return {"model": model_settings(self.model)}


@checked
class Answers(nn.Module):
    """Mean loss per question, in nats: the loss of the answer type plus, for a span, the mean of the losses of its
    start and end. A batch has `windows` and `attention_mask` as the model reads them; `text`, `starts` and `ends`
    (B, W, T) bool, which mark tokens of the text, and tokens at which an answer may begin and end; and `types` (B,).

    The start is chosen among all tokens of the text, in all windows of a question (one softmax), and so is the end. If
    the answer occurs several times, each occurrence is correct, and their probabilities are added.
    model: `repro.recurrence.RecurrentEncoder`. recurrent, recompute: as in its forward.

    >>> from repro.recurrence import RecurrenceConfig, RecurrentEncoder
    >>> from transformers import RobertaConfig
    >>> model = RecurrentEncoder(RobertaConfig(vocab_size=30, hidden_size=8, num_hidden_layers=1,
    ...     num_attention_heads=2, intermediate_size=8), RecurrenceConfig(insert_layer=0))
    >>> Answers(model, recurrent=False).settings()["recurrent"]
    False
    """

    def __init__(self, model: nn.Module, recurrent: bool = True, recompute: str = "none"):
        super().__init__()
        self.model, self.recurrent, self.recompute = model, recurrent, recompute

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        read = self.model(batch["windows"], batch["attention_mask"], self.recurrent, self.recompute)
        return answer_nats(read, batch).mean()

    def settings(self) -> dict:
        """Whether h_prev is carried, and the model's settings; recomputation does not change results."""
        return {"recurrent": self.recurrent, "model": model_settings(self.model)}


def answer_nats(read, batch: Mapping[str, Tensor]) -> Tensor:
    """(B,) nats of the right answer to each question of a batch, as in `Answers`; read: the output of the model."""
    spans = [_among(logits, batch["text"], batch[name])
             for name, logits in (("starts", read.start_logits), ("ends", read.end_logits))]
    return cross_entropy(read.type_logits, batch["types"], "none") + torch.stack(spans).mean(0)


def _among(logits: Tensor, text: Tensor, right: Tensor) -> Tensor:
    """(B,) nats of the `right` tokens (B, W, T) among the tokens of `text` (B, W, T); 0 if none is right."""
    logits, text, right = logits.float().flatten(1), text.flatten(1), right.flatten(1)
    marked = right.any(1)
    every = logits.masked_fill(~text, -torch.inf).logsumexp(1)
    some = logits.masked_fill(~torch.where(marked[:, None], right, text), -torch.inf).logsumexp(1)
    return torch.where(marked, every - some, 0.0)


@checked
class Labels(nn.Module):
    """Mean negative log-likelihood of the label per document, in nats, for batches from `evaluation.classification`.

    model: maps token ids (B, N) and lengths (B,) to logits (B, labels), such as `repro.models.Encoder`.

    >>> from repro.models import Encoder, EncoderConfig, classifier_patterns
    >>> model = Encoder(EncoderConfig(9, 8, 2, classifier_patterns(window=4, n_layer=1)))
    >>> batch = {"ids": torch.ones(2, 10, dtype=torch.int64), "lengths": torch.tensor([10, 4]),
    ...     "labels": torch.tensor([0, 1])}
    >>> Labels(model)(batch).ndim
    0
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        logits = self.model(batch["ids"], batch["lengths"])
        return cross_entropy(logits, batch["labels"]) / len(batch["labels"])

    def settings(self) -> dict:
        """The model's settings."""
        return {"model": model_settings(self.model)}


@checked
class Task(nn.Module):
    """The loss of a fine-tuning task plus the language-model loss on its texts, for batches from
    `repro.models.labelled`.

    model: a `repro.models.TaskModel`. lm_weight: the weight of the language-model loss, 0 or more.

    >>> from repro.models import GPT, GPTConfig, TaskModel, labelled
    >>> base = GPT(GPTConfig(vocab_size=9, n_positions=64, n_layer=1, n_embd=8, n_head=2))
    >>> objective = Task(TaskModel(base, "classification", n_outputs=2), lm_weight=0.5)
    >>> objective(labelled([([[1, 2, 3]], 0), ([[4, 5]], 1)])).ndim
    0
    """

    def __init__(self, model: nn.Module, lm_weight: float = 0.5):
        super().__init__()
        check_lm_weight(lm_weight)
        self.model, self.lm_weight = model, lm_weight

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        return self.model(batch["ids"], batch["lengths"], batch["labels"], self.lm_weight).loss

    def settings(self) -> dict:
        """The weight, and the model's settings."""
        return {"lm_weight": self.lm_weight, "model": self.model.settings()}


@checked
class Summaries(nn.Module):
    """Mean negative log-likelihood per token, in nats, of summaries and, for decoders that read both as one text, of
    the inputs; for batches from `evaluation.summaries.padded`.

    model: has `read(source, lengths, ids, id_lengths)`, such as `repro.models.OneText`. input_weight: the weight of an
    input token, relative to 1 for a summary token. balance: the weight of the loss that keeps all experts in use;
    balance_padding: whether that loss includes padding.

    >>> from repro.models import EncoderDecoder, EncoderDecoderConfig
    >>> model = EncoderDecoder(EncoderDecoderConfig(vocab_size=9, n_embd=8, n_head=2, n_layer=1))
    >>> batch = {"source": torch.tensor([[3, 4, 5]]), "lengths": torch.tensor([3]),
    ...     "ids": torch.tensor([[0, 6, 7]]), "labels": torch.tensor([[6, 7, 0]])}
    >>> Summaries(model)(batch).ndim
    0
    """

    def __init__(self, model: nn.Module, input_weight: float = 1.0, balance: float = 0.01,
                 balance_padding: bool = False):
        super().__init__()
        for name, weight in (("input_weight", input_weight), ("balance", balance)):
            check_number(weight, name)
        self.model, self.input_weight = model, input_weight
        self.balance, self.balance_padding = balance, balance_padding

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        id_lengths = None if self.balance_padding else batch.get("id_lengths")
        output = self.model.read(batch["source"], batch["lengths"], batch["ids"], id_lengths)
        total = cross_entropy(output.logits.flatten(0, 1), batch["labels"].flatten())
        n = (batch["labels"] >= 0).sum()
        if output.source is not None and self.input_weight:
            follows = batch["source"][:, 1:]
            places = torch.arange(1, batch["source"].shape[1], device=follows.device)
            follows = follows.masked_fill(places >= batch["lengths"][:, None], -100)
            total = total + self.input_weight * cross_entropy(output.source[:, :-1].flatten(0, 1), follows.flatten())
            n = n + self.input_weight * (follows >= 0).sum()
        return total / n + self.balance * output.balance

    def settings(self) -> dict:
        """The weights of the additional losses, and the model's settings."""
        return {"input_weight": self.input_weight, "balance": self.balance, "model": model_settings(self.model)} | (
            {"balance_padding": True} if self.balance_padding else {})


def _predicted(batch: Tensor | Mapping[str, Tensor], before: int = 0) -> tuple[Tensor, Tensor, int | Tensor]:
    """The input (B, N + 1), the labels (B, N + 1, -100: ignored), and the number to divide the loss by.

    before: the number of first tokens that are not targets; the one after them is also only read.
    """
    tokens = batch if isinstance(batch, Tensor) else batch["input_ids"]
    if tokens.ndim != 2 or tokens.dtype not in (torch.int64, torch.int32) or not tokens[:, before + 1:].numel():
        raise ReproError(f"a batch holds {tokens.dtype} of shape {tuple(tokens.shape)}; give int64 ids (B, N), N at "
                         f"least {before + 2}.")
    if isinstance(batch, Tensor) and before:
        labels = batch.clone()
        labels[:, :before + 1] = -100
        return batch, labels, batch[:, before + 1:].numel()
    if isinstance(batch, Tensor):
        return batch, batch, batch[:, 1:].numel()
    if batch["labels"].shape != tokens.shape:
        raise ReproError(f"labels have shape {tuple(batch['labels'].shape)}, input_ids {tuple(tokens.shape)}; they "
                         "must be the same.")
    return tokens, batch["labels"], batch["n_targets"].sum()


@checked
def model_settings(model: nn.Module) -> dict:
    """The computation settings in a model's config, without the path it was loaded from; {} without a config.

    >>> from repro.models import gpt2_mini
    >>> model_settings(gpt2_mini(n_layer=1, n_embd=8, n_head=2, vocab_size=9))["n_layer"]
    1
    >>> model_settings(torch.nn.Linear(2, 2))
    {}
    """
    config = getattr(model, "config", None)
    settings = config.to_dict() if hasattr(config, "to_dict") else {}
    return {k: v for k, v in settings.items() if k not in ("_name_or_path", "transformers_version", "architectures")}


@checked
class HeadLoss(nn.Module):
    """The mean loss of a batch, in nats per example, from the head of a `TaskReader`.

    model: has a `reader` and a `head`, whose `losses(outputs, batch)` are nats (B,). task: a name for the settings.
    Raises ReproError for a model without reader or head.

    >>> from repro.models import longformer_from, roberta_mini
    >>> from repro.models.long_reader import Reader, TaskReader
    >>> from repro.models.task_heads import LabelHead
    >>> base = roberta_mini(1, 8, 2, vocab_size=20, n_positions=16).base_model
    >>> model = TaskReader(Reader(longformer_from(base, 16, 4), sep=2), LabelHead(8, n_labels=2))
    >>> HeadLoss(model, "reviews").settings()["task"]
    'reviews'
    """

    def __init__(self, model: nn.Module, task: str):
        super().__init__()
        if not hasattr(model, "reader") or not hasattr(getattr(model, "head", None), "losses"):
            raise ReproError(f"{type(model).__name__} has no reader with a head that has losses; give a TaskReader of "
                             "repro.models.long_reader.")
        self.model, self.task = model, task

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        return self.model.head.losses(self.model(batch), batch).mean()

    def settings(self) -> dict:
        """The task, how texts are read, and the encoder's settings."""
        reader = self.model.reader
        return {"task": self.task, "piece": reader.piece, "first_piece": reader.first_piece,
                "model": model_settings(self.model)}

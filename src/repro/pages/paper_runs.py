"""The papers' own runs: memory, hours and cost on 8 GPUs and on 64, calculated, and published times of such runs.

Weights, tokens, FLOPs and memory are the experiments' own estimates at `paper`, for training only: those of
`repro run EXPERIMENT --scale paper --dry-run`. Time is the FLOPs divided by the sustained speed of the GPUs, plus the
all-reduce of the gradients after every step. A GPU trains on whole sequences, so a step of 16 sequences keeps 16 GPUs
busy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Any

from repro.errors import ReproError, check_number, check_whole, unknown
from repro.pages.costs import as_hours
from repro.study.experiment import Estimate, experiment
from repro.study.published import printed_rows
from repro.study.registry import cited

if TYPE_CHECKING:
    import pandas

COUNTS = 8, 64  # GPUs
PEAKS = {  # FLOP/s of dense matrix products according to the data sheets: in half and in single precision
    "H100": (989e12, 67e12), "A100": (312e12, 19.5e12), "V100": (125e12, 15.7e12), "RTX 8000": (130.5e12, 16.3e12),
    "P6000": (12e12, 12e12)}  # no half-precision units, so the peak is that of single precision
NODE, INSIDE, BETWEEN = 8, 2e11, 5e10  # GPUs per node; bytes/s of an all-reduce within a node, and of a node's network
LEAST = 0.001  # share of the peak
PLAUSIBLE = 0.10, 0.60  # shares of the peak that published transformer trainings reach


@dataclass(frozen=True)
class Cluster:
    """The assumptions about the GPUs: their kind, the share of the half-precision peak that training sustains, and the
    price of one GPU in dollars per hour.

    The defaults follow two published runs of GPT-2 small on A100s: about nanoGPT's share of the peak, llm.c's price.
    Raises ReproError for an unknown GPU, a share outside 0.001 to 1 and a price below 0 or of a million and more.

    >>> Cluster(price=2.5).sustained / 1e12  # TFLOP/s of one GPU
    93.6
    """

    gpu: str = "A100"
    utilization: float = 0.3
    price: float = 1.75

    def __post_init__(self):
        if self.gpu not in PEAKS:
            raise unknown("GPU", self.gpu, PEAKS)
        check_number(self.price, "price", below=1e6)
        if not LEAST <= check_number(self.utilization, "utilization") <= 1:
            raise ReproError(f"utilization is {self.utilization:g}; it is a share of the GPU's peak, from {LEAST:g} to "
                             "1, such as 0.3.")

    @property
    def sustained(self) -> float:
        """FLOP/s of one GPU."""
        return PEAKS[self.gpu][0] * self.utilization


@dataclass(frozen=True)
class PaperRun:
    """A training run of a paper: the run of `experiment` at `paper` that `where` selects, with the settings in
    `change`.

    `length` is the number of tokens in a sequence. `batch` says whether the paper prints the number of sequences per
    step; if not, a step has the larger of the experiment's number and the number of GPUs.

    >>> run = PaperRun("GPT", "pretrain-gpt", 512, batch=True, change={"source": "scratch", "tokens": 32_768})
    >>> run.estimate.parameters, run.phases(8) == [(1, 64, run.estimate.flops)]
    (116534784, True)
    """

    name: str
    experiment: str
    length: int
    batch: bool = False
    where: Mapping[str, Any] = field(default_factory=dict)
    change: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def config(self) -> Any:
        """The config of the run. Raises ReproError if no run at `paper` has the settings in `where`."""
        for config in experiment(self.experiment).plan("paper"):
            if all(getattr(config, key) == value for key, value in self.where.items()):
                return config.model_copy(update=dict(self.change))
        raise ReproError(f"no run of {self.experiment} at paper has {dict(self.where)}.")

    @cached_property
    def estimate(self) -> Estimate:
        """The experiment's own estimate of this run."""
        return self._estimated()

    def _estimated(self, **change: Any) -> Estimate:
        return experiment(self.experiment).estimate(self.config.model_copy(update=change))

    def phases(self, n_gpus: int) -> list[tuple[int, int, float]]:
        """(steps, sequences per step, FLOPs) of each phase on `n_gpus` GPUs; most training runs have one phase."""
        if hasattr(self.config, "batch_sizes"):
            steps, none = self.config.steps, (0,) * len(self.config.steps)
            alone = [(*none[:k], n, *none[k + 1:]) for k, n in enumerate(steps)]
            rest = self._estimated(steps=none).flops
            return [(n, batch, self._estimated(steps=one).flops - rest)
                    for n, batch, one in zip(steps, self.config.batch_sizes, alone, strict=True)]
        batch = self.config.batch_size if self.batch else max(n_gpus, self.config.batch_size)
        return [(ceil(self.estimate.training_tokens / (batch * self.length)), batch, self.estimate.flops)]

    def memory(self, n_gpus: int) -> int:
        """Peak bytes on the fullest of `n_gpus` GPUs, each with all weights, as with DDP."""
        each = [ceil(batch / min(n_gpus, batch)) for _, batch, _ in self.phases(n_gpus)]
        many = hasattr(self.config, "batch_sizes")
        return self._estimated(**({"batch_sizes": tuple(each)} if many else {"batch_size": each[0]})).memory_bytes


@dataclass(frozen=True)
class Need:
    """The needs of a run: bytes per GPU, hours, the share of the hours spent in the all-reduce, and dollars for all
    GPUs."""

    memory_bytes: int
    hours: float
    waiting: float
    dollars: float


def need(run: PaperRun, n_gpus: int, cluster: Cluster | None = None) -> Need:
    """The needs of `run` on `n_gpus` GPUs, by default those of the default cluster. Raises ReproError without a GPU.

    An all-reduce sends 2 (n - 1)/n times the gradients, 4 bytes per weight, and nothing is computed in the meantime: an
    upper bound, since DDP overlaps the two.

    >>> need(RUNS[0], 64).hours < need(RUNS[0], 8).hours < 10 * need(RUNS[0], 64).hours
    True
    """
    check_whole(n_gpus, "n_gpus")
    cluster = cluster or Cluster()
    computing = sending = 0.0
    for steps, batch, flops in run.phases(n_gpus):
        busy = min(n_gpus, batch)
        computing += flops * ceil(batch / busy) / batch / cluster.sustained
        sent = 2 * (busy - 1) / busy * 4 * run.estimate.parameters
        sending += steps * sent / (INSIDE if busy <= NODE else BETWEEN)
    hours = (computing + sending) / 3600
    return Need(run.memory(n_gpus), hours, sending / (computing + sending), hours * n_gpus * cluster.price)


# BooksCorpus has 800 million words (Devlin et al. 2019, section 3.1); about 1.25 tokens a word, 100 epochs.
GPT_TOKENS = 100 * 1_000_000_000
# The GPT-2 report prints no number of steps. nanoGPT reproduces it with 600,000 of 480 sequences of 1,024 tokens.
GPT2_TOKENS = 600_000 * 480 * 1_024
UNSCORED = {"contexts": (), "drawn": 0, "scored": 1}  # training only
IMAGENET = {  # section 7.3: 1,281,149 images of 64 x 64 x 3 bytes, 70 epochs, in steps of 32
    "side": 64, "length": 12_288, "n_layer": 48, "n_embd": 512, "n_head": 16, "key_size": None, "inner": 4,
    "stride": 128, "steps": 70 * 1_281_149 // 32}
RUNS = (
    PaperRun("GPT", "pretrain-gpt", 512, True, {}, {"source": "scratch", "tokens": GPT_TOKENS, "precision": "bf16"}),
    PaperRun("GPT-2, 117M", "pretrain-gpt2-sizes", 1_024, True, {"size": "117M"},
             {"source": "scratch", "tokens": GPT2_TOKENS}),
    PaperRun("GPT-2, 1542M", "pretrain-gpt2-sizes", 1_024, True, {"size": "1542M"},
             {"source": "scratch", "tokens": GPT2_TOKENS}),
    PaperRun("T-DMCA, 11,000 tokens", "summarise", 11_110, False,
             {"model": "t-dmca", "length": 11_000, "n_experts": 0}),
    PaperRun("Sparse Transformer, enwik8", "sparse-density", 12_288, False, {"corpus": "enwik8", "pattern": "fixed"},
             UNSCORED),
    PaperRun("Sparse Transformer, ImageNet 64", "sparse-density", 12_288, False,
             {"corpus": "cifar10", "pattern": "strided"}, UNSCORED | IMAGENET),
    PaperRun("Longformer, characters, small", "charlm", 2_048, True, {"model": "small"}, {"scored": 1}),
    PaperRun("Longformer, characters, large", "charlm", 2_048, True, {"model": "large"}, {"scored": 1}),
    PaperRun("Longformer, MLM, base", "roberta-to-longformer", 4_096, True,
             {"configuration": "long", "source": "FacebookAI/roberta-base"}),
    PaperRun("Longformer, MLM, large", "roberta-to-longformer", 4_096, True,
             {"configuration": "long", "source": "FacebookAI/roberta-large"}),
    PaperRun("Recurrence, WikiText-103", "finetune-gpt2", 6_000, False, {"model": "recurrent"}, {"precision": "bf16"}),
    PaperRun("LED, arXiv, 16,384 tokens", "led-summarization", 8_890, False, {"model": "led", "max_input": 16_384}),
)
OTHERS = (  # with a published time, and too short to use 64 GPUs well
    PaperRun("Longformer, TriviaQA", "longformer-tasks", 4_096, True, {"corpus": "triviaqa", "model": "longformer"}),
    PaperRun("Longformer, WikiHop", "wikihop-ablation", 4_096, True, {"configuration": "longformer"}),
)


def needs(cluster: Cluster | None = None) -> "pandas.DataFrame":
    """One row for each of the papers' own runs: its needs on 8 GPUs and on 64, as text such as "30 / 19".

    >>> list(needs().columns)[:5]
    ['run', 'of', 'weights, M', 'tokens, B', 'FLOPs']
    """
    import pandas

    n_gpus, rows = " / ".join(map(str, COUNTS)), []
    for run in RUNS:
        found, small = [need(run, n, cluster) for n in COUNTS], run.estimate
        rows.append({
            "run": run.name, "of": cited(experiment(run.experiment).paper),
            "weights, M": f"{small.parameters / 1e6:,.0f}", "tokens, B": f"{small.training_tokens / 1e9:,.2f}",
            "FLOPs": f"{small.flops:.1e}",
            f"GB a GPU, {n_gpus}": " / ".join(f"{one.memory_bytes / 1e9:,.0f}" for one in found),
            f"hours on {n_gpus}": " / ".join(as_hours(one.hours) for one in found),
            "share in the all-reduce": " / ".join(percent(one.waiting) for one in found),
            f"dollars, {n_gpus}": " / ".join(f"{one.dollars:,.0f}" for one in found)})
    return pandas.DataFrame(rows)


def times() -> "pandas.DataFrame":
    """One row for each published time: our count of the run's FLOPs as a share of what its GPUs could have computed.

    >>> times().loc[0, "share of the peak"]
    '29%'
    """
    import pandas

    return pandas.DataFrame([{
        "run": row["run"], "time as printed": row["time_as_printed"], "FLOPs": f"{flops:.1e}",
        "peak": f"{row['gpu']}, {'half' if row['half_precision'] == 'yes' else 'single'} precision",
        "share of the peak": percent(share), "share in the other precision": percent(other) if other < 1 else "–",
        "source": row["source"] + ", quoted" * (row["confidence"] == "quoted"), "remark": row["note"]}
        for row, flops, share, other in shares()])


def shares() -> list[tuple[dict[str, str], float, float, float]]:
    """Each row of `training_times.csv`, its FLOPs by our count, and their shares of what its GPUs could have computed
    in that time, in the precision of the row and in the other one."""
    runs, found = {run.name: run for run in (*RUNS, *OTHERS)}, []
    for row in printed_rows("training_times"):
        one = runs[row["run"]].estimate
        flops = one.flops * (int(row["tokens"]) / one.training_tokens if row["tokens"] else 1)
        rate = flops / (int(row["gpus"]) * float(row["hours"]) * 3600)
        half, single = (rate / peak for peak in PEAKS[row["gpu"]])
        found.append((row, flops, *((half, single) if row["half_precision"] == "yes" else (single, half))))
    return found


def percent(share: float) -> str:
    """A share in the format of the pages.

    >>> percent(0.294), percent(0.035)
    ('29%', '3.5%')
    """
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}"

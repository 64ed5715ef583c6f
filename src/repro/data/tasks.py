"""The tasks that GPT is fine-tuned and tested on here: which rows of which corpus (Radford et al. 2018, section 4.2).

A model is tested on the available labeled rows: for CoLA, RTE and SST-2 the development set, because GLUE does not
publish their test labels. The first rows of RACE, which are used here, are all from RACE-h. SICK replaces SNLI. Story
Cloze is missing, because it is available only on request.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from repro.data.registry import corpus
from repro.errors import ReproError, check_whole, unknown


@dataclass(frozen=True)
class Task:
    """Rows to train on and to be tested on: the first `n_train` and `n_test` (None: all) of two splits of a corpus.

    named: whether the file of the corpus has labels by name; otherwise it has numbers or scores.

    >>> from dataclasses import replace
    >>> replace(task("sst2"), n_train=100).n_train
    100
    """

    name: str
    corpus: str
    test: str
    n_train: int | None = None
    n_test: int | None = None
    train: str = "train"
    named: bool = False

    def examples(self, split: str, n: int | None = None) -> Iterator[Any]:
        """The rows of "train" or "test" in the order of the file, the first `n` of them if given.

        Raises ReproError for another split, missing files, and more rows than the file has.
        """
        if split not in ("train", "test"):
            raise unknown(f"split of task {self.name}", split, ("train", "test"))
        place, wanted = (self.train, self.n_train) if split == "train" else (self.test, self.n_test)
        wanted = wanted if n is None else n
        if wanted is not None:
            check_whole(wanted, "n", of=f"rows of task {self.name}")
        found = 0
        for row in islice(corpus(self.corpus).examples(place), wanted):
            found += 1
            yield row
        if wanted is not None and found < wanted:
            raise ReproError(f"{wanted:,} rows of task {self.name}, {split}: {self.corpus} has only {found:,} in "
                             f"{place}.")

    def label_text(self, label: int | float) -> int | float | str:
        """A label as written in the file."""
        return corpus(self.corpus).labels[label] if self.named else label


TASKS = {one.name: one for one in (
    Task("cola", "cola", "validation"),
    Task("sst2", "sst2-subset", "validation", n_train=5_000),  # of 20,000
    Task("mrpc", "mrpc", "test"),
    Task("stsb", "stsb", "test"),
    Task("rte", "rte", "validation", named=True),
    Task("sick", "sick", "test", named=True),
    Task("openbookqa", "openbookqa", "test"),
    Task("race", "race-subset", "test", n_train=1_000, n_test=600),
    Task("gap", "gap", "test", train="development"),
    # of each form one that is generated
    Task("topics", "synthetic-topics", "test"),
    Task("belonging", "synthetic-belonging", "test"),
    Task("pairs", "synthetic-pairs", "test"),
    Task("nouns", "synthetic-nouns", "test"),
    # as in the paper, if fetched
    Task("mnli", "multinli", "validation_matched"),
    Task("mnli-mismatched", "multinli", "validation_mismatched"),
    Task("qnli", "qnli", "validation"),
    Task("qqp", "qqp", "validation"),
    Task("snli", "snli", "test"),
    Task("scitail", "scitail", "test", named=True),
)}


def task(name: str) -> Task:
    """The task called `name`; ReproError with the nearest name if there is none.

    >>> task("sst2").corpus
    'sst2-subset'
    """
    if not isinstance(name, str) or name not in TASKS:
        raise unknown("task", name, TASKS)
    return TASKS[name]

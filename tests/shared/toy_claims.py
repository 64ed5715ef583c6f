"""Two claims and three tables about the toy study of `tests/conftest.py`."""

import numpy as np

from repro.study import Artifact, Claim, Measured, register


def difference(records):
    """Recurrent less baseline, (seeds, 3 units) that spread by 0.1 around it."""
    by_model = {model: [record.metrics["test_word_perplexity"] for record in records if record.model == model]
                for model in ("recurrent", "baseline")}
    effects = np.subtract(by_model["recurrent"], by_model["baseline"])
    return Measured(effects[:, None] + [-0.1, 0.0, 0.1])


DECLARED = {"id": "toy-gain", "paper": "toy2020", "sentence": "Recurrence lowers perplexity.", "source": "Table 1",
            "experiment": "toy-recurrence", "where": lambda config: config.overlap == 5, "measure": difference,
            "direction": "lower", "unit": "book", "same_weights": True, "means_at": ("smoke", "small"),
            "why_no_paper_effect": "a toy", "why_no_control": "a toy", "why_no_assay": "a toy"}


def declare():
    """Registers them; returns a list that fills with the records that each claim is given."""
    seen = []

    def measure(records):
        seen.append([(record.model, record.config["overlap"], record.seed) for record in records])
        by_model = {record.model: record.metrics["test_word_perplexity"] for record in records}
        return Measured([[by_model["recurrent"] - by_model["baseline"] + noise for noise in (-0.1, 0.0, 0.1)]])

    cost = DECLARED | {"id": "toy-cost", "sentence": "Recurrence is free.", "where": lambda config: True,
                       "measure": measure, "about": ("toy-table10",)}
    register(Claim(**DECLARED | {"measure": measure, "about": ("toy-table1",)}), Claim(**cost),
             Artifact("toy-table10", "toy2020", "Table", "10_toy", "toy-recurrence", lambda context: None, "Table 10"),
             Artifact("toy-table1", "toy2020", "Table", "06_toy", "toy-recurrence", lambda context: None, "Table 1"),
             Artifact("toy-table1-other", "other2020", "Table", "06_toy", "toy-base", lambda context: None, "Table 1"))
    return seen

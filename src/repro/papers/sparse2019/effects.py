"""How the claims' effects are measured, and the effects that the paper prints."""

from collections.abc import Callable, Sequence
from math import log
from statistics import fmean
from typing import TYPE_CHECKING

from repro.papers.sparse2019.settings import WINDOW, is_as_large_as_fits, is_image, is_sound
from repro.papers.sparse2019.tables import BITS, PRINTED
from repro.study import Measured, Record
from repro.study.published import printed_rows

if TYPE_CHECKING:
    import numpy as np

ABOUT = 1.5  # two memory sizes count as about equal up to this ratio
TOGETHER = {"text": 2, "sound": 12}  # neighboring blocks per stretch; for sound about a second, a few notes


def bits(record: Record, split: str = "test") -> "np.ndarray":
    """(units,) bits per byte, one per image or stretch of text or sound; their mean is the bits per byte of the whole
    split."""
    import numpy as np

    from repro.evaluation.bootstrap import linearised

    kept = record.documents[split]
    nll, n = np.array(kept["nll"]) / log(2), np.array(kept["n_bytes"], float)
    if not is_image(record.config):
        starts = np.arange(0, len(n), TOGETHER["sound" if is_sound(record.config) else "text"])
        nll, n = np.add.reduceat(nll, starts), np.add.reduceat(n, starts)
    return linearised(nll, n)


def fewer_bits(better: Callable[[dict], bool]) -> Callable[[Sequence[Record]], Measured]:
    """Measures the bits of the runs for which `better` holds minus the others' bits, seed by seed, on the same test
    data."""
    def measure(records: Sequence[Record]) -> Measured:
        chosen, others = ([record for record in records if better(record.config) is wanted] for wanted in (True, False))
        return Measured([bits(one) - bits(other) for one, other in zip(chosen, others, strict=True)])
    return measure


def has(key: str, value) -> Callable[[dict], bool]:
    """Whether a record's config has this value."""
    return lambda config: config[key] == value


def last_context(records: Sequence[Record]) -> Measured:
    """Bits per byte with the longest minimum context minus bits with the shortest; same weights, same bytes."""
    least, most = (of(records[0].config["contexts"]) for of in (min, max))
    return Measured([bits(record, f"test at {most}") - bits(record, f"test at {least}") for record in records],
                    note=f"at least {most} bytes of context against {least}")


def worth_of_reach(records: Sequence[Record]) -> float:
    """Bits per byte by which dense attention beats a window."""
    dense, window = ([record.metrics[BITS] for record in records if record.config["pattern"] == name]
                     for name in ("dense", WINDOW))
    return fmean(window) - fmean(dense)


def longest_and_shortest(measure: Callable[[Record], object]) -> Callable[[Sequence[Record]], Measured]:
    """Measures how `measure` differs between the runs with the longest and with the shortest sequences, seed by
    seed."""
    def difference(records: Sequence[Record]) -> Measured:
        ends = [max(record.config["length"] for record in records), min(record.config["length"] for record in records)]
        longest, shortest = ([record for record in records if record.config["length"] == end] for end in ends)
        return Measured([measure(one) - measure(other) for one, other in zip(longest, shortest, strict=True)])
    return difference


def beyond_size(records: Sequence[Record]) -> Measured:
    """Bits per byte of the smallest model on the longest sequences, minus bits of the largest model on the shortest.

    The control is the cost of size alone: the smallest model minus the largest, both on the shortest sequences.
    """
    fits, alone = ([record for record in records if is_as_large_as_fits(record.config) is wanted]
                   for wanted in (True, False))
    shortest = [record for record in fits if record.config["length"] == alone[0].config["length"]]
    size = [bits(one) - bits(other) for one, other in zip(alone, shortest, strict=True)]
    return longest_and_shortest(bits)(fits)._replace(control=size)


def smaller(records: Sequence[Record]) -> Measured:
    """Log ratio of the weights with the longest sequences to those with the shortest, and the memory of both.

    If one took over `ABOUT` times as much memory as the other, memory was not held equal and the effect counts as 0.
    """
    import numpy as np

    found = longest_and_shortest(lambda record: np.log([record.metrics["parameters"]]))(records)
    rows = sorted(records, key=lambda record: record.config["length"])
    least, most = sorted(row.metrics["memory_per_sequence"] for row in (rows[0], rows[-1]))
    taken = " and ".join(f"{record.metrics['memory_per_sequence'] / 2**20:,.0f} MiB at {record.config['length']:,}"
                         for record in (rows[0], rows[-1]))
    unequal = f": {most / least:.1f} times, so memory was not held equal" if most > ABOUT * least else ""
    return found._replace(effects=found.effects if not unequal else [[0.0]],
                          note=f"a sequence takes {taken} samples{unequal}")


def log_ratio(metric: str, better: str) -> Callable[[Sequence[Record]], Measured]:
    """Measures the log ratio of a metric between two patterns, `better` over the other; the metric is counted, so no
    chance is involved."""
    def measure(records: Sequence[Record]) -> Measured:
        values = {record.config["pattern"]: record.metrics[metric] for record in records}
        return Measured([[log(values[better] / next(value for name, value in values.items() if name != better))]])
    return measure


def printed_patterns(data: str, one: str, other: str) -> Callable[[], float]:
    """Bits per byte of one pattern minus those of another, in Table 2."""
    def effect() -> float:
        found = {row["model"]: float(row["bits_per_byte"]) for row in printed_rows("sparse2019_table2_patterns")
                 if row["dataset"] == data}
        return round(found[PRINTED[one]] - found[PRINTED[other]], 6)
    return effect


def printed_ends(table: str, column: str, key: str) -> Callable[[], float]:
    """The value of `column` in the row with the largest `key` minus its value in the row with the smallest."""
    def effect() -> float:
        rows = sorted(printed_rows(table), key=lambda row: float(row[key]))
        return round(float(rows[-1][column]) - float(rows[0][column]), 6)
    return effect


def printed_weights() -> float:
    """Log of the ratio of weights between the ends of Table 4."""
    rows = sorted(printed_rows("sparse2019_table4_audio"), key=lambda row: int(row["sequence_length"]))
    return log(float(rows[-1]["parameters_millions"]) / float(rows[0]["parameters_millions"]))


def worst(metric: str):
    """Measures the larger exponent of the two factorized patterns; it is counted, so no chance is involved."""
    return lambda records: Measured([[max(record.metrics[metric] for record in records)]])


def deepest(measure):
    """Measures how `measure` differs between the deepest models with scaled and with unscaled output weights, each at
    its best learning rate."""
    def measured(records):
        import numpy as np

        most = max(record.config["n_layer"] for record in records)
        scaled, others = (at_best_rate([record for record in records if record.config["n_layer"] == most
                                        and record.config["scaled"] is kind]) for kind in (True, False))
        return Measured([np.atleast_1d(measure(one) - measure(other))
                         for one, other in zip(scaled, others, strict=True)])
    return measured


def at_best_rate(records):
    """The records trained at the learning rate with the fewest bits on the validation text, over all seeds."""
    rates = {record.config["learning_rate"]: [] for record in records}
    for record in records:
        rates[record.config["learning_rate"]].append(record.metrics["validation_bits_per_byte"])
    best = min(rates, key=lambda rate: fmean(rates[rate]))
    return [record for record in records if record.config["learning_rate"] == best]


def saved(records):
    """Log ratio of the bytes per token, recomputed to kept, in the deepest model."""
    most = max(records, key=lambda record: record.config["n_layer"])
    return Measured([[log(most.metrics["bytes_per_token_recomputed"] / most.metrics["bytes_per_token_kept"])]])


def grown(records):
    """Log growth of the variance with scaled output weights minus log growth without scaling, in the deepest models."""
    return deepest(lambda record: log(record.metrics["growth_of_variance"]))(records)


def evened(records):
    """Log ratio of the larger to the smaller gradient norm of the first and the last layer, scaled minus unscaled, in
    the deepest models."""
    found = deepest(lambda record: abs(log(record.metrics["gradient_ratio"])))(records)
    return found._replace(note="ratio of the larger gradient to the smaller")

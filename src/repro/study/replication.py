"""Judge a claim on a reader's own text, with the study's measure, rule and, where it has them, models."""

import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro import paths
from repro.errors import ReproError, unknown
from repro.study import plan
from repro.study.cache import caching
from repro.study.claims import UNITS, Claim, claims, latest
from repro.study.experiment import Rereading, corpus_named
from repro.study.record import Record
from repro.study.rule import MACHINERY, NOT_RUN, Verdict
from repro.study.runner import model_at_hand, run
from repro.study.runs import Run
from repro.study.settings import RunConfig, canonical, validated

if TYPE_CHECKING:
    from repro.data.base import Corpus
    from repro.data.own_text import OwnText

DOCUMENTS = 5  # the fewest units for which the coverage of the rule's intervals was simulated
KNOWN = 0.4  # least share of a document's words that are one token; English books have 0.64 to 0.85, German text 0.33
SAMPLE = 20_000  # characters per document that are checked for this
WORD = re.compile(r"[^\W\d_]+")
NAMED = 3  # most documents or claims named in one message
ANY = "synthetic-books"  # a corpus that is on every machine, as a placeholder for a reader's text
MARK = 8  # digits of the fingerprint in a folder's name


@dataclass(frozen=True)
class Replication:
    """A claim judged on a reader's text, and the study's own verdict.

    `study` comes from the same scale, or from the study's largest scale if it has no records there.
    """

    claim: Claim
    scale: str
    corpus: str
    fingerprint: str
    n_documents: int
    found: Verdict
    study_scale: str
    study_corpus: str
    study: Verdict
    records: tuple[str, ...]  # ids
    folder: Path  # that contains them
    note: str = ""

    def rows(self) -> list[dict[str, Any]]:
        """One row per verdict: the study's, then the verdict on the reader's text."""
        return [row(self.claim, f"the study: {self.study_corpus}", self.study_scale, self.study),
                row(self.claim, f"yours: {self.corpus}", self.scale, self.found, self.note)]

    def as_json(self) -> dict[str, Any]:
        """All fields, for JSON."""
        study, yours = self.rows()
        return {"claim": self.claim.id, "sentence": self.claim.sentence, "study": study,
                "yours": yours | {"corpus": self.corpus, "fingerprint": self.fingerprint,
                                  "documents": self.n_documents, "records": list(self.records)},
                "verdicts": {"study": asdict(self.study), "yours": asdict(self.found)}}


def row(claim: Claim, text: str, scale: str, verdict: Verdict, note: str = "") -> dict[str, Any]:
    """A verdict as one row: text, scale, verdict, effect with interval and unit, units, and the reasons."""
    units = ""
    if verdict.effect is not None:
        seeds = f"{verdict.n_seeds} seed{'s' * (verdict.n_seeds != 1)}"
        units = seeds if claim.unit == "seed" else f"{verdict.n_units} {UNITS[claim.unit]}, {seeds}"
    effect = f"{verdict.measured} {claim.unit_shown}".strip() if verdict.measured else ""
    return {"text": text, "scale": scale, "verdict": verdict.verdict, "effect": effect, "units": units,
            "notes": "; ".join(filter(None, (note, verdict.reasons, "; ".join(verdict.commands))))}


def replicate(claim: Claim, folder: Path | str, scale: str | None = None, results: Path | str | None = None,
              progress: bool = True) -> Replication:
    """Measure `claim` on the .txt files in `folder`, and judge it by the rule of the study.

    scale: None means `small` for a claim that only scores text, and `smoke` for a claim whose models learn from it.
    results: the folder for the new records; default: a folder in `build/replications/` named after the corpus and its
    fingerprint. The models are the study's. At scales other than `smoke` they must already be here; nothing trains
    them. progress: whether to print the expected training time on standard error, and to show bars on a terminal.
    `smoke` gives no verdict; it only shows that the code runs.

    Raises ReproError for a claim that cannot be replicated, with the reason; for text that is too short, has too few
    documents or is not in the models' language (`check_text`); and if `results` is inside the study's own records.
    """
    from repro.data.own_text import own_text
    from repro.data.registry import also

    if reason := why_not(claim):
        raise ReproError(f"{claim.id} cannot be replicated: {reason}.{_others(scale, results)}")
    reading = _reading(claim)
    if scale is None:
        scale = next(one for one in (("smoke",) if reading.trains else ("small",)) + claim.scales
                     if one in claim.scales)
    if scale not in claim.scales:
        raise unknown(f"scale of {claim.id}", scale, claim.scales)
    if reason := why_not(claim, scale):
        raise ReproError(f"{claim.id} cannot be replicated at {scale}: {reason}.{_others(scale, results)}")
    text = own_text(folder, reading.trains)
    place = Path(results or paths.home() / "build" / "replications" / f"{text.name}-{text.fingerprint()[:MARK]}")
    for own in {paths.results("smoke"), paths.results("small")}:
        if place.resolve().is_relative_to(own.resolve()):
            raise ReproError(f"--results {place} is inside {own}, the study's own records; choose another folder.")
    with also(text):
        configs = _configs(claim, scale, text.name)
        if scale != "smoke" and not reading.trains:
            if reason := _lacking([mine for _, mine in configs], reading, results):
                raise ReproError(f"{reason}{_others(scale, results)}")
        check_text(claim, scale, text)
        about = _about_training(claim, configs, text) if reading.trains else ""
        if progress and about:
            sys.stderr.write(f"{training(claim, scale)}; {about}\n")
        found, records = _judged(claim, scale, configs, place, progress)
        where, study = scale, claim.verdict(scale)
        if study.verdict == NOT_RUN:
            where, study = latest(claim)
        made = Replication(
            claim, scale, text.name, text.fingerprint(), len(text.files), found, where,
            ", ".join(sorted({_scored(config) for config in claim.needed(where)})) if where else "", study,
            tuple(dict.fromkeys(record.id for record in records)), place,
            "; ".join(filter(None, (*_notes(claim, scale, where, study), about))))
    paths.write_atomic(place / scale / f"{claim.id}.json", canonical(made.as_json()) + "\n")
    return made


def why_not(claim: Claim, scale: str | None = None) -> str:
    """Why a claim cannot be judged on another text; "" if it can. scale: consider only this scale."""
    if claim.unit == "exact":
        return "it compares counts or printed numbers, which no text changes"
    for one in claim.scales if scale is None else [scale]:
        configs = claim.needed(one)
        names = sorted({_scored(config) for config in configs})
        strange = [name for name in names if not corpus_named(name).is_text]
        if strange:
            kind = corpus_named(strange[0]).content_kind
            return f"it reads examples of the kind '{kind}' ({strange[0]}), not running text"
        if len(names) > 1:
            return f"it compares several texts ({', '.join(names)}), and a folder is one"
    for one in claim.experiments:
        if one.rereading is None:
            return f"the experiment {one.name} reads only its own text"
    return ""


def _scored(config: RunConfig) -> str:
    """The corpus that a config is tested on."""
    return getattr(config, "scored_corpus", None) or config.corpus


def _reading(claim: Claim) -> Rereading:
    return claim.experiments[0].rereading


@caching()
def judgeable(scale: str, results: Path | str | None = None) -> tuple[list[Claim], list[Claim]]:
    """The claims that get a verdict on another text at `scale`: first those whose models and corpora are here, then
    those whose models learn from that text first. Both are empty at `smoke`."""
    here, learning, lacking = [], [], {}
    for claim in claims():
        if scale not in claim.scales or scale not in claim.means_at or why_not(claim) or why_not(claim, scale):
            continue
        reading, configs = _reading(claim), [mine for _, mine in _configs(claim, scale, ANY)]
        if reading.trains:
            learning.append(claim)
        else:
            key = tuple(dict.fromkeys((reading.learns(one), *(need.key for need in Run(one).models))
                                      for one in configs))
            if key not in lacking:
                lacking[key] = _lacking(configs, reading, results)
            if not lacking[key] and all(Run(one).data_at_hand for one in configs):
                here.append(claim)
    return here, learning


def _others(scale: str | None, results: Path | str | None) -> str:
    """The end of a message, which lists the claims that can be judged."""
    if scale == "smoke":
        return " No claim gets a verdict at smoke; `repro replicate --list` names those that get one at small."
    scale = scale or "small"
    here, learning = judgeable(scale, results)
    listed = [f"{len(able)} can {how}: {', '.join(one.id for one in able[:most])}{', ...' * (len(able) > most)}"
              for able, how, most in ((here, "with the models here", len(here)),
                                      (learning, "after training on your text", NAMED)) if able]
    return f" Of all claims, at {scale} {'; '.join(listed) or 'none can'}."


def training(claim: Claim, scale: str) -> str:
    """How many models a replication of `claim` trains on the text, and the estimated time, as text."""
    from repro.study.budget import duration

    configs, seeds = claim.needed(scale), len(seeds_of(claim))
    seconds = seeds * sum(Run(config).experiment.estimate(config).seconds for config in configs)
    n = seeds * len(configs)
    return f"trains {n} model{'s' * (n != 1)} on the text, about {duration(seconds)} at {scale} (an estimate)"


def _about_training(claim: Claim, configs: Sequence[tuple[RunConfig, RunConfig]], text: "OwnText") -> str:
    """How the training text differs from the study's in size and alphabet."""
    parts = [f"its training part has {_size(text)}"]
    for name in sorted({own.corpus for own, _ in configs}):
        theirs = corpus_named(name)
        parts.append(f"the study's {name} has {_size(theirs)}" if theirs.available() else
                     f"the study's {name} is not on this machine")
    return ", ".join(parts)


def _size(text: "Corpus") -> str:
    n, kinds = 0, set()
    for document in text.stream("train"):
        n += len(document.content)
        kinds |= set(document.content)
    return f"{n:,} bytes of {len(kinds)} different values"


def _notes(claim: Claim, scale: str, study_scale: str, study: Verdict) -> list[str]:
    """How the verdict on the reader's text differs from the study's."""
    notes, seeds = [_reading(claim).note(claim.needed(scale))], len(seeds_of(claim))
    if scale not in claim.means_at:
        trains = f", which {training(claim, 'small')}" if _reading(claim).trains and "small" in claim.scales else ""
        notes.append(f"{scale} gives no verdict, it shows that the code runs; for one take --scale small{trains}")
    if study.n_seeds > seeds:
        notes.append(f"{seeds} seed{'s' * (seeds != 1)}, the study has {study.n_seeds}")
    if claim.family:
        notes.append("your text is judged alone, the study's verdict shares its error of 5% with its family of claims")
    return notes


def seeds_of(claim: Claim) -> range:
    """The seeds that a replication runs: the number that the claim needs, or one if the same weights are compared."""
    return range(1 if claim.same_weights else claim.seeds)


def _configs(claim: Claim, scale: str, corpus: str) -> list[tuple[RunConfig, RunConfig]]:
    """The configs that judge a claim, each paired with the same config on the reader's corpus."""
    needed = claim.needed(scale)
    changed = dict(zip((one.key for one in needed), _reading(claim).settings(needed, corpus), strict=True))
    return [(config, validated(type(config), config.model_dump() | changed[config.key])) for config in needed]


def _lacking(configs: Sequence[RunConfig], reading: Rereading, results: Path | str | None) -> str:
    """Why these runs cannot start: they first train on the study's text, or need models that are not here; "" if they
    can."""
    learning = [config for config in configs if reading.learns(config)]
    if learning:
        return (f"{len(learning)} of {len(configs)} runs of {learning[0].experiment} at {learning[0].scale} train a "
                "model on the study's text first, which takes hours; a replication does so only at smoke, without a "
                "verdict.")
    needed = {one.key: one for config in configs for one in Run(config).models}
    missing = [one for one in needed.values() if not model_at_hand(one, results)]
    if missing:
        first = missing[0]
        return (f"{len(missing)} of {len(needed)} models of {first.experiment} at {first.scale} are not here, and a "
                f"replication trains none; make the first one with: {Run(first).command}.")
    return ""


def check_text(claim: Claim, scale: str, text: "OwnText") -> None:
    """Raise ReproError if `claim` cannot be measured on this text at `scale`.

    The reasons: too few documents for an interval; a document with too few tokens, or in a language that the study's
    tokenizer does not know; for a text that trains models, a part that is too short.
    """
    reading, configs = _reading(claim), claim.needed(scale)
    least, n_documents = max(map(reading.tokens, configs)), len(text.files)
    if n_documents < DOCUMENTS:
        raise ReproError(f"{text.source} has {n_documents} document{'s' * (n_documents != 1)}; a replication needs at "
                         f"least {DOCUMENTS}. Add .txt files.")
    if reading.trains:
        for split in text.splits:
            n = sum(len(document.content) for document in text.stream(split))
            if n < least:
                raise ReproError(f"{text.source} is too short: its {split} part has {n:,} bytes, and {claim.id} needs "
                                 f"{least:,} at {scale}; add text.")
        return
    documents = text.documents("test")
    coder = reading.tokeniser(configs[0])
    known = {document.id: known_words(coder, [document.text[:SAMPLE]]) for document in documents}
    foreign = [f"{name} ({share:.0%})" for name, share in known.items() if share < KNOWN]
    if foreign:
        advice = ("The models of smoke read generated text alone: take --scale small" if scale == "smoke" else
                  "The models read English")
        raise ReproError(f"the tokenizer of the models knows fewer than {KNOWN:.0%} of the words in {len(foreign)} of "
                         f"{len(documents)} documents in {text.source}: {_named(foreign)}. "
                         f"{advice}; check language and encoding, or take them out.")
    lengths = {document.id: n_tokens(coder, document.text, least) for document in documents}
    short = [f"{name} ({n:,})" for name, n in lengths.items() if n < least]
    if short:
        raise ReproError(f"{len(short)} of {len(documents)} documents in {text.source} have fewer tokens than the "
                         f"{least:,} that {claim.id} needs: {_named(short)}. Take them out or join them.")


def _named(documents: Sequence[str]) -> str:
    """The names of the first few documents, and the number of the others."""
    more = f" and {len(documents) - NAMED} more" if len(documents) > NAMED else ""
    return f"{', '.join(documents[:NAMED])}{more}"


def n_tokens(coder: Any, text: str, enough: int) -> int:
    """The number of tokens of `text`, counted up to about `enough`."""
    n = len(coder.encode(text[:8 * enough]))
    return n if n >= enough or len(text) <= 8 * enough else len(coder.encode(text))


def known_words(coder: Any, texts: Sequence[str]) -> float:
    """The share of the words of `texts` that a tokenizer knows, i.e. encodes as one token with the space before them.

    >>> from repro.data import train_bpe
    >>> known_words(train_bpe(["the cat sat"] * 9, 300), ["the cat sat on the mat"])
    0.6666666666666666
    """
    if coder.name == "word":  # it cannot encode unknown words
        words, vocabulary = [word for text in texts for word in text.split()], coder.backend.get_vocab()
        return sum(word in vocabulary for word in words) / max(1, len(words))
    n = known = 0
    for text in texts:
        starts = {int(stop): int(start) for start, stop in coder.offsets(text)}
        words = list(WORD.finditer(text))
        n += len(words)
        known += sum(starts.get(word.end(), len(text)) <= word.start() for word in words)
    return known / max(1, n)


def _judged(claim: Claim, scale: str, configs: Sequence[tuple[RunConfig, RunConfig]], place: Path,
            progress: bool) -> tuple[Verdict, list[Record]]:
    """The verdict on the reader's text, and the records behind it; missing records are made."""
    seeds, records, positive = seeds_of(claim), [], []
    todo = [(own, mine.model_copy(update={"seed": seed})) for own, mine in configs for seed in seeds]
    for number, (own, mine) in enumerate(todo, 1):
        if progress and sys.stderr.isatty():
            sys.stderr.write(f"{number}/{len(todo)} {mine.experiment} {_point(mine, todo)}\n")
        record = run(mine, place, progress=progress)
        if claim.where(own):
            records.append(record)
        if claim.assay and claim.assay.where(own):
            positive.append(record)
    found = claim.judge(records, positive)  # a single claim shares its error with no family
    return (found if scale in claim.means_at else replace(found, verdict=MACHINERY, because=())), records + positive


def _point(config: RunConfig, todo: Sequence[tuple[RunConfig, RunConfig]]) -> str:
    same = [mine for _, mine in todo if mine.experiment == config.experiment]
    return plan.point(config, same)

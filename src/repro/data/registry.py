"""The corpora of the study: what each is, how it is read, where it comes from, and the counts it must have.

To add a corpus, add one `Corpus(...)` to `DECLARED`. Its files are read by one of `readers` (text) or `example_readers`
(rows of examples), and `repro data fetch` gets what `origin` says, if it says anything.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from repro.data import (
    books,
    conll,
    examples,
    normalisation,
    readers,
    sources,
    synthetic,
    synthetic_articles,
    synthetic_candidates,
    synthetic_coreference,
    synthetic_documents,
    synthetic_hops,
    synthetic_images,
    synthetic_sound,
    synthetic_tasks,
    synthetic_web,
)
from repro.data import example_readers as rows
from repro.data.base import Corpus, Split
from repro.data.fetch import Archive
from repro.errors import ReproError, unknown


def corpus(name: str) -> Corpus:
    """The corpus called `name`; ReproError with the nearest name if there is none.

    >>> corpus("pg19-subset").part_of
    'PG-19: 384 of 28,602 training books, 26 validation books of our own choice, 33 of 100 test books'
    """
    if not isinstance(name, str) or name not in _BY_NAME:
        raise unknown("corpus", name, _BY_NAME)
    return _BY_NAME[name]


@contextmanager
def also(one: Corpus) -> Iterator[None]:
    """While it is active, `corpus` finds `one` too. Raises ReproError for a name that another corpus has."""
    if one.name in _BY_NAME:
        raise ReproError(f"corpus '{one.name}' is one of the study; give yours another name.")
    _BY_NAME[one.name] = one
    try:
        yield
    finally:
        del _BY_NAME[one.name]


def corpora() -> list[Corpus]:
    """All corpora of the study, those of text first.

    >>> "synthetic-books" in [one.name for one in corpora()]
    True
    """
    return list(DECLARED)


def _by_name(declared: Iterable[Corpus]) -> dict[str, Corpus]:
    """The corpora by name. Raises ReproError for a name that two of them have."""
    found: dict[str, Corpus] = {}
    for one in declared:
        if one.name in found:
            raise ReproError(f"corpus '{one.name}' is declared twice in repro.data.registry; rename one of them.")
        found[one.name] = one
    return found


def _cut(file: str, train: int, rest: int) -> dict[str, Split]:
    """The splits of one file that is cut into training bytes, and `rest` bytes each of validation and test."""
    return {"train": Split(f"the first {train:,} bytes", file, 1, n_bytes=train),
            "validation": Split(f"the next {rest:,} bytes", file, 1, n_bytes=rest),
            "test": Split(f"the last {rest:,} bytes", file, 1, n_bytes=rest)}


TEXT8 = "http://mattmahoney.net/dc/text8.zip", "text8", "3bea1919949baf155f99411df5fada7e"
ENWIK8 = "http://mattmahoney.net/dc/enwik8.zip", "enwik8", "a1fa5ffddb56f4953e226637dabbb36a"
UNKNOWN = ("<unk>",)  # replaces rare words in WikiText's training text; never in its validation and test text
# of WikiText-103, the same for any training text; bytes are counted as it is read
WIKITEXT_HELD_OUT = {"validation": Split("complete", "wiki.valid.raw.xz", 60, 213_886, 217_646, 1_145_689),
                     "test": Split("complete", "wiki.test.raw.xz", 60, 241_211, 245_569, 1_289_522)}

TEXT = [
    Corpus(
        "wikitext-103", "CC BY-SA 3.0", "Salesforce/wikitext", joined=True, folder="wikitext", read=readers.wikitext,
        origin=sources.wikitext2,
        normalise=normalisation.PLAIN, never_targets=UNKNOWN,
        part_of="WikiText-103: its training text is WikiText-2's (2 %), validation and test are complete",
        splits={
            "train": Split("WikiText-2's training text", "wikitext-2.train.parquet",
                           n_words=2_051_910, n_words_with_ends=2_088_628,
                           counts={"<unk>": 41_572}),
            **WIKITEXT_HELD_OUT,
        }),
    Corpus(
        "wikitext-103-full", "CC BY-SA 3.0", "Salesforce/wikitext", joined=True, folder="wikitext-103-full",
        read=readers.wikitext, origin=sources.wikitext103,
        normalise=normalisation.PLAIN, never_targets=UNKNOWN,
        splits={
            "train": Split("complete", "wikitext-103.train-*-of-*.parquet",
                           n_words=101_425_671, n_words_with_ends=103_227_021),
            **WIKITEXT_HELD_OUT,
        }),
    Corpus(
        "wikitext-103-unk", "CC BY-SA 3.0", "Salesforce/wikitext", joined=True, folder="wikitext",
        read=readers.wikitext, origin=sources.wikitext103_unk,
        part_of="WikiText-103: its validation and test texts with <unk> for rare words, as published",
        splits={"validation": Split("complete", "wiki.valid.tokens.xz", 60, 213_886, 217_646, 1_142_309),
                "test": Split("complete", "wiki.test.tokens.xz", 60, 241_211, 245_569, 1_281_077)}),
    Corpus(
        "pg19", "public domain in the USA", "emozilla/pg19", folder="pg19", read=readers.shelf, origin=sources.pg19,
        normalise=normalisation.PLAIN,
        splits={
            "train": Split("complete", "train-*-of-*.parquet", 28_602),
            "validation": Split("complete", "validation.parquet", 50),
            "test": Split("complete", "test.parquet", 100),
        }),
    Corpus(
        "pg19-subset", "public domain in the USA", "emozilla/pg19", folder="pg19-subset", read=readers.shelf,
        normalise=normalisation.PLAIN,
        origin=lambda: sources.pg19_part({"train": books.SUBSET_TRAIN, "validation": books.SUBSET_VALIDATION,
                                          "test": books.SUBSET_TEST}),
        part_of="PG-19: 384 of 28,602 training books, 26 validation books of our own choice, 33 of 100 test books",
        splits={
            "train": Split("384 training books", "train-*-of-*.parquet", 384, 26_120_407),
            "validation": Split("26 held-out books", "validation*.parquet", 26, 1_789_300),
            "test": Split("33 official test books", "test*.parquet", 33, 2_285_427),
        }),
    Corpus(
        "gutenberg-pretrain", "public domain in the USA", "emozilla/pg19", folder="gutenberg-pretrain",
        read=readers.shelf_with_held_out, normalise=normalisation.PLAIN,
        origin=lambda: sources.pg19_part({"train": books.PRETRAIN_TRAIN + books.PRETRAIN_VALIDATION}),
        part_of="PG-19: 262 of 28,602 training books, none of them in pg19-subset",
        splits={
            "train": Split("all but the last 3 books", "train-*-of-*.parquet", 259),
            "validation": Split("the last 3 books", "train-*-of-*.parquet", 3),
        }),
    Corpus(
        "text8-prefix", "CC BY-SA / GFDL", "text8.zip of Matt Mahoney's page", folder="text8", read=readers.cut_text,
        origin=lambda: Archive(*TEXT8, first=6_877_825),
        part_of="text8: the first 6,877,825 of 100,000,000 bytes, cut 90/5/5",
        splits=_cut("text8-first-6877825-bytes.xz", 6_190_043, 343_891)),
    Corpus(
        "enwik8-prefix", "CC BY-SA / GFDL", "enwik8.zip of Matt Mahoney's page", folder="enwik8", read=readers.cut_text,
        origin=lambda: Archive(*ENWIK8, first=4_154_399),
        part_of="enwik8: the first 4,154,399 of 100,000,000 bytes, cut 90/5/5",
        splits=_cut("enwik8-first-4154399-bytes.xz", 3_739_399, 207_500)),
    Corpus(
        "text8", "CC BY-SA / GFDL", "text8.zip of Matt Mahoney's page", folder="text8", read=readers.cut_text,
        origin=lambda: Archive(*TEXT8), splits=_cut("text8", 90_000_000, 5_000_000)),
    Corpus(
        "enwik8", "CC BY-SA / GFDL", "enwik8.zip of Matt Mahoney's page", folder="enwik8", read=readers.cut_text,
        origin=lambda: Archive(*ENWIK8), splits=_cut("enwik8", 90_000_000, 5_000_000)),
    Corpus(
        "synthetic-books", "MIT, written by this package", "embedded", generator=synthetic.BOOKS,
        read=readers.generated_books,
        splits={split: Split("books of known best perplexity", n_documents=n, n_words=n * synthetic.BOOKS.book_words)
                for split, n in synthetic.SIZES.items()}),
]

# Texts or pairs of texts with a label or a score.
LABELLED = [
    Corpus(
        "imdb", "none stated; for research, with citation", "stanfordnlp/imdb", folder="imdb-full",
        read=rows.labelled(), labels=("negative", "positive"), origin=sources.imdb,
        splits={name: Split("complete", f"{name}-*-of-*.parquet", n_examples=25_000,
                            counts={"negative": 12_500, "positive": 12_500}) for name in ("train", "test")}),
    Corpus(
        "imdb-subset", "none stated; for research, with citation",
        "ai.stanford.edu/~amaas/data/sentiment (aclImdb v1), by way of a public copy", folder="imdb",
        read=rows.labelled(id="id"), labels=("negative", "positive"),
        part_of="IMDB: 10,000 of 25,000 training and 5,000 of 25,000 test reviews, drawn evenly by label",
        splits={
            "train": Split("10,000 reviews", "train.parquet", n_examples=10_000,
                           counts={"negative": 5_000, "positive": 5_000}),
            "test": Split("5,000 reviews", "test.parquet", n_examples=5_000,
                          counts={"negative": 2_500, "positive": 2_500}),
        }),
    Corpus(
        "hyperpartisan", "CC BY 4.0 (not checked); the articles are their publishers'",
        "doi.org/10.5281/zenodo.1489920 (by article), by way of a public copy", folder="hyperpartisan",
        read=rows.labelled(id="id"), labels=("not hyperpartisan", "hyperpartisan"),
        part_of="SemEval-2019 task 4: its 645 training articles labelled one by one, in a split of our own "
                "(516/64/65); none of its test articles",
        splits={name: Split(f"{n} of 645 articles, a split of our own", "byarticle.parquet", rows=called, n_examples=n,
                            counts={"hyperpartisan": labelled})
                for name, called, n, labelled in (
                    ("train", "train", 516, 192), ("validation", "dev", 64, 19), ("test", "test", 65, 27))}),
    Corpus(
        "sst2-subset", "none stated", "GLUE, by way of a public copy", folder="gpt1-tasks", read=rows.labelled(),
        labels=("negative", "positive"), part_of="SST-2 (GLUE): 20,000 of 67,349 training rows; validation is complete",
        splits={
            "train": Split("20,000 sentences and phrases", "sst2.parquet", rows="train", n_examples=20_000,
                           counts={"positive": 11_212}),
            "validation": Split("complete", "sst2.parquet", rows="test", n_examples=872, counts={"positive": 444}),
        }),
    Corpus(
        "cola", "none stated", "GLUE, by way of a public copy", folder="gpt1-tasks", read=rows.labelled(),
        labels=("unacceptable", "acceptable"),
        splits={
            "train": Split("complete", "cola.parquet", rows="train", n_examples=8_551, counts={"acceptable": 6_023}),
            "validation": Split("complete", "cola.parquet", rows="dev", n_examples=1_043, counts={"acceptable": 721}),
        }),
    Corpus(
        "rte", "none stated", "GLUE, by way of a public copy", folder="gpt1-tasks",
        read=rows.labelled(text="sentence1", pair="sentence2"), labels=("entailment", "not_entailment"),
        splits={
            "train": Split("complete", "rte.parquet", rows="train", n_examples=2_490, counts={"entailment": 1_249}),
            "validation": Split("complete", "rte.parquet", rows="dev", n_examples=277, counts={"entailment": 146}),
        }),
    Corpus(
        "mrpc", "Microsoft Research data license, for research (not checked)",
        "microsoft.com/download id 52398, by way of a public copy", folder="gpt1-tasks",
        read=rows.labelled(text="sentence1", pair="sentence2"), labels=("different", "paraphrase"),
        splits={
            "train": Split("complete", "mrpc.parquet", rows="train", n_examples=4_076, counts={"paraphrase": 2_753}),
            "test": Split("complete", "mrpc.parquet", rows="test", n_examples=1_725, counts={"paraphrase": 1_147}),
        }),
    Corpus(
        "sick", "CC BY-NC-SA 3.0 (not checked)", "zenodo.org/records/2787612, by way of a public copy",
        folder="gpt1-tasks", read=rows.labelled(text="sentence1", pair="sentence2"),
        labels=("CONTRADICTION", "NEUTRAL", "ENTAILMENT"),
        splits={name: Split("complete", "sick.parquet", rows=called, n_examples=n, counts={
                    "CONTRADICTION": against, "NEUTRAL": neither, "ENTAILMENT": entailed})
                for name, called, n, against, neither, entailed in (
                    ("train", "train", 4_500, 665, 2_536, 1_299), ("validation", "dev", 500, 74, 282, 144),
                    ("test", "test", 4_927, 720, 2_793, 1_414))}),
    Corpus(
        "stsb", "mixed, by source (not checked)", "STS benchmark, by way of a public copy", folder="gpt1-tasks",
        read=rows.labelled(text="sentence1", pair="sentence2", label="score", score=(0, 5)),
        splits={name: Split("complete", "stsb.parquet", rows=called, n_examples=n)
                for name, called, n in (
                    ("train", "train", 5_749), ("validation", "dev", 1_500), ("test", "test", 1_379))}),
    *(Corpus(name, licence, source, folder=name, read=rows.labelled(pair="pair"), labels=labels, origin=origin, splits={
        split: Split("complete" if n else what, f"{split}-*-of-*.parquet", n_examples=n) for split, n in sizes.items()})
      for name, licence, source, origin, labels, what, sizes in (
          ("multinli", "mixed, by genre (not checked)", "nyu-mll/multi_nli", sources.multinli,
           ("entailment", "neutral", "contradiction"), "", sources.MULTINLI_ROWS),
          ("qnli", "CC BY-SA 4.0 (not checked)", "nyu-mll/glue", sources.qnli,
           ("entailment", "not_entailment"), "", sources.QNLI_ROWS),
          ("qqp", "none stated", "nyu-mll/glue", sources.qqp, ("different", "duplicate"),
           "complete but for pairs with an empty question", dict.fromkeys(sources.QQP_ROWS)),
          ("snli", "CC BY-SA 4.0", "stanfordnlp/snli", sources.snli, ("entailment", "neutral", "contradiction"),
           "complete but for pairs without a label", dict.fromkeys(sources.SNLI_ROWS)),
          ("scitail", "Apache-2.0 (not checked)", "allenai/scitail", sources.scitail, ("neutral", "entailment"), "",
           sources.SCITAIL_ROWS))),
    Corpus(
        "synthetic-documents", "MIT, written by this package", "embedded", read=rows.generated[examples.LabelledText],
        generator=synthetic_documents.DOCUMENTS, labels=synthetic_documents.LABELS,
        splits={split: Split("documents of known best accuracy", n_examples=n)
                for split, n in synthetic_documents.SIZES.items()}),
    Corpus(
        "synthetic-reviews", "MIT, written by this package", "embedded", read=rows.generated[examples.LabelledText],
        generator=synthetic_documents.REVIEWS, labels=synthetic_documents.LABELS,
        splits={split: Split("documents in which five late words decide", n_examples=n)
                for split, n in synthetic_documents.REVIEW_SIZES.items()}),
    *(Corpus(f"synthetic-{kind}", "MIT, written by this package", "embedded", read=(
                 rows.generated[examples.LabelledText] if labels else rows.generated[examples.MultipleChoice]),
             generator=synthetic_tasks.SyntheticTask(kind), labels=labels,
             splits={split: Split("examples of known best score", n_examples=n)
                     for split, n in synthetic_tasks.SIZES.items()})
      for kind, labels in synthetic_tasks.LABELS.items()),
]

# Questions: with paragraphs to find the answer in, with candidates to choose from, or a last word to tell.
QUESTIONS = [
    Corpus(
        "hotpotqa", "CC BY-SA 4.0", "hotpotqa/hotpot_qa", folder="hotpotqa-full", read=rows.questions(),
        origin=sources.hotpotqa,
        splits={
            "train": Split("complete, distractor setting", "train-*-of-*.parquet", n_examples=90_447),
            "validation": Split("complete, distractor setting", "validation-*-of-*.parquet", n_examples=7_405),
        }),
    Corpus(
        "triviaqa", "not stated (questions); CC BY-SA 3.0 (articles)", "mandarjoshi/trivia_qa", folder="triviaqa",
        read=rows.document_questions(), origin=sources.triviaqa,
        part_of="TriviaQA: the questions with articles of Wikipedia, without the hidden answers of the test set",
        splits={"train": Split("complete", "train-*-of-*.parquet", n_examples=61_888),
                "validation": Split("complete", "validation-*-of-*.parquet", n_examples=7_993)}),
    Corpus(
        "hotpotqa-subset", "CC BY-SA 4.0 (not checked)", "hotpotqa.github.io, by way of public copies of parts of it",
        folder="hotpotqa", read=rows.questions(sentence_split="sentence_split"),
        part_of="HotpotQA: 3,075 of 97,852 questions with ten paragraphs, most of them of its development set, in a "
                "split of our own",
        splits={
            "train": Split("2,575 questions, the supporting facts of 2,101 known", "train.parquet", n_examples=2_575,
                           counts={"supporting facts": 5_174}),
            "validation": Split("500 development questions", "validation.parquet", n_examples=500,
                                counts={"supporting facts": 1_202}),
        }),
    Corpus(
        "2wikimultihop-sample", "Apache-2.0 (not checked)",
        "github.com/Alab-NII/2wikimultihop, by way of a public copy", folder="multihop-other",
        read=rows.questions(between=" ", level=None),
        part_of="2WikiMultihopQA: 500 of 12,576 development questions",
        splits={"validation": Split("500 questions", "2wikimultihop_sample.parquet", n_examples=500,
                                    counts={"paragraphs": 5_000})}),
    Corpus(
        "synthetic-hops", "MIT, written by this package", "embedded", read=rows.generated[examples.Question],
        generator=synthetic_hops.HOPS,
        splits={split: Split("questions that take two steps, of known best score", n_examples=n)
                for split, n in synthetic_hops.SIZES.items()}),
    Corpus(
        "synthetic-candidates", "MIT, written by this package", "embedded",
        read=rows.generated[examples.MultipleChoice], generator=synthetic_candidates.CANDIDATES,
        splits={split: Split("questions with candidates, decided by the end of a text", n_examples=n)
                for split, n in synthetic_candidates.SIZES.items()}),
    Corpus(
        "wikihop", "CC BY-SA 3.0", "community-datasets/qangaroo", folder="wikihop", origin=sources.wikihop,
        read=rows.choices(question="query", candidates="candidates", answer="answer", paragraphs="supports"),
        splits={"train": Split("complete", "train-*-of-*.parquet", n_examples=43_738),
                "validation": Split("complete", "validation-*-of-*.parquet", n_examples=5_129)}),
    Corpus(
        "synthetic-far-hops", "MIT, written by this package", "embedded", read=rows.generated[examples.Question],
        generator=synthetic_hops.FAR_HOPS,
        splits={split: Split("questions whose two steps are far apart, of known best score", n_examples=n)
                for split, n in synthetic_hops.SIZES.items()}),
    Corpus(
        "wikihop-sample", "CC BY-SA 3.0 (not checked)", "qangaroo.cs.ucl.ac.uk, by way of a public copy",
        folder="multihop-other",
        read=rows.choices(question="query", candidates="candidates", answer="answer", paragraphs="supports"),
        part_of="WikiHop: 50 of 51,318 questions, to try the format",
        splits={"train": Split("22 questions", "wikihop_tiny.parquet", rows="train", n_examples=22),
                "validation": Split("28 questions", "wikihop_tiny.parquet", rows="dev", n_examples=28)}),
    Corpus(
        "race-subset", "for non-commercial research (not checked)", "RACE, by way of a public copy",
        folder="gpt1-tasks", read=rows.choices(id=None, candidates="options", paragraphs="article"),
        part_of="RACE: 6,712 of 87,866 training, 704 of 4,887 validation, 1,196 of 4,934 test questions",
        splits={name: Split(f"all questions on {passages:,} passages", "race.parquet", rows=called, n_examples=n,
                            counts={"candidates": 4 * n})
                for name, called, passages, n in (("train", "train", 1_900, 6_712), ("validation", "dev", 200, 704),
                                                  ("test", "test", 350, 1_196))}),
    Corpus(
        "openbookqa", "Apache-2.0 (not checked)", "OpenBookQA (main), by way of a public copy", folder="gpt1-tasks",
        read=rows.choices(),
        splits={name: Split("complete", "openbookqa.parquet", rows=called, n_examples=n, counts={"candidates": 4 * n})
                for name, called, n in (("train", "train", 4_957), ("validation", "dev", 500), ("test", "test", 500))}),
    Corpus(
        "commonsenseqa-dev", "MIT (not checked)", "CommonsenseQA, by way of a public copy", folder="gpt1-tasks",
        read=rows.choices(),
        part_of="CommonsenseQA 1.11: its 1,221 development questions of 12,102",
        splits={"validation": Split("complete", "commonsenseqa_dev.parquet", rows="dev", n_examples=1_221,
                                    counts={"candidates": 5 * 1_221})}),
    Corpus(
        "lambada", "CC BY 4.0 (not checked)", "doi.org/10.5281/zenodo.2630551, by way of a public copy",
        folder="lambada", read=rows.last_words("text_plain"),
        splits={"validation": Split("complete, lower case, tokenised", "dev_plain.parquet", n_examples=4_869),
                "test": Split("complete, lower case, tokenised", "test.parquet", n_examples=5_153)}),
    Corpus(
        "lambada-cased", "CC BY 4.0 (not checked)", "OpenAI's form of LAMBADA, by way of a public copy",
        folder="lambada", read=rows.last_words("text_cased"),
        splits={"test": Split("complete, as GPT-2 was tested on it", "test.parquet", n_examples=5_153)}),
    *(Corpus(
        f"pg19-clozes-{kind}", "public domain in the USA (the books)", "made of pg19-subset by this package",
        folder="pg19-subset", read=rows.cloze_questions(kind, most=20),
        part_of="PG-19: its held-out books of pg19-subset, as questions in the form of the Children's Book Test",
        made_of=tuple(one for one in TEXT if one.name == "pg19-subset"),
        splits={"validation": Split("up to 20 questions on each of 26 books", "validation*.parquet",
                                    n_examples=n_validation, counts={"candidates": 10 * n_validation}),
                "test": Split("up to 20 questions on each of 33 books", "test*.parquet", n_examples=n_test,
                              counts={"candidates": 10 * n_test})})
      for kind, n_validation, n_test in (("names", 345, 462), ("nouns", 476, 521))),
    Corpus(
        "book-names", "public domain in the USA (the books)", "made of pg19-subset by this package",
        folder="pg19-subset", read=rows.book_names(),
        part_of="PG-19: books of pg19-subset, as questions on names in the form of WikiHop",
        made_of=tuple(one for one in TEXT if one.name == "pg19-subset"),
        splits={"train": Split("up to 4 questions on each training book", "train*.parquet", n_examples=1_200),
                "test": Split("up to 28 questions on each of 33 books", "test*.parquet", n_examples=600)}),
]

# The next base model is trained on this text, kept apart from the evaluation texts named below and from no others. It
# may share text with text8 and enwik8, with GAP, WikiHop and RTE (Wikipedia), with LitBank (novels), and with other
# tasks.
PRETRAINING = Corpus(
    "books-and-wikipedia", "public domain in the USA (books); CC BY-SA 4.0 (Wikipedia, not checked)",
    "the files of gutenberg-pretrain and hotpotqa-subset", folder=".", read=readers.wikipedia_and_books,
    part_of="PG-19 and Wikipedia: 262 of 28,602 training books, the paragraphs of 2,575 of HotpotQA's questions; apart "
            "from the evaluation texts of WikiText-103, pg19-subset, hotpotqa-subset, 2wikimultihop-sample and LAMBADA",
    normalise=normalisation.PLAIN,
    made_of=tuple(one for one in (*TEXT, *QUESTIONS) if one.name in ("gutenberg-pretrain", "hotpotqa-subset")),
    apart_from=tuple(one for one in (*TEXT, *QUESTIONS) if one.name in (
        "wikitext-103", "pg19-subset", "hotpotqa-subset", "2wikimultihop-sample", "lambada", "lambada-cased")),
    splits={
        name: Split(what, ("hotpotqa/train.parquet", "gutenberg-pretrain/train-*-of-*.parquet"), n, n_words, counts={
            "passages left out": passages, "words left out": words, "passages left out of question-*": of_questions[0],
            "words left out of question-*": of_questions[1], "words of question-*": of_questions[2]})
        for name, what, n, n_words, passages, words, of_questions in (
            ("train", "the paragraphs of 2,548 questions, 259 books", 2_807, 18_290_531, 944, 94_513,
             (662, 75_212, 2_183_193)),
            ("validation", "the paragraphs of 26 questions, 3 books", 29, 250_129, 6, 748, (4, 570, 22_963)))})
TEXT.append(PRETRAINING)

_printed, = (one for one in TEXT if one.name == "gutenberg-pretrain")
TEXT.append(replace(_printed, name="gutenberg-unwrapped", source="the files of gutenberg-pretrain", origin=None,
                    made_of=(_printed,), normalise=normalisation.UNWRAPPED))

# Who or what is meant.
COREFERENCE = [
    Corpus(
        "litbank", "CC BY 4.0; the novels are in the public domain", "github.com/dbamman/litbank", folder="coref",
        read=rows.coreference(),
        splits={name: Split(f"{n} of 100 novels' first 2,000 words, a split of our own", "litbank.parquet", rows=called,
                            n_examples=n, counts={"tokens": tokens, "clusters": clusters, "mentions": mentions})
                for name, called, n, tokens, clusters, mentions in (
                    ("train", "train", 80, 167_524, 6_347, 23_038),
                    ("validation", "dev", 10, 20_849, 788, 2_892),
                    ("test", "test", 10, 22_159, 792, 3_173))}),
    Corpus(
        "ontonotes", "the Linguistic Data Consortium's; not to be passed on", "LDC2013T19, in the form of CoNLL 2012",
        folder="ontonotes", read=conll.READER, labels=conll.GENRES,
        splits={name: Split("complete, English", f"{called}.english.v4_gold_conll", n_examples=n)
                for name, called, n in (("train", "train", 2_802), ("validation", "dev", 343), ("test", "test", 348))}),
    Corpus(
        "synthetic-coreference", "MIT, written by this package", "embedded", read=rows.generated[examples.Coreference],
        generator=synthetic_coreference.COREFERENCE,
        splits={split: Split("stories of known best score", n_examples=n)
                for split, n in synthetic_coreference.SIZES.items()}),
    Corpus(
        "gap", "Apache-2.0; the text is Wikipedia's", "github.com/google-research-datasets/gap-coreference",
        folder="coref", read=rows.pronouns(),
        splits={name: Split("complete", "gap.parquet", rows=name, n_examples=n,
                            counts={"feminine": n // 2, "masculine": n // 2, "a": a, "b": b})
                for name, n, a, b in (
                    ("development", 2_000, 874, 925),
                    ("validation", 454, 187, 205),
                    ("test", 2_000, 918, 855))}),
]

SUMMARIES = [
    Corpus(
        "scisummnet-subset", "CC BY 4.0; the papers are the ACL Anthology's", "github.com/WING-NUS/scisumm-corpus",
        folder="summarization", read=rows.summaries(document="article", summary="abstract"),
        part_of="ScisummNet: 701 of 978 papers, with their abstracts as summaries, in a split of our own",
        splits={name: Split(f"{n} papers", "scisummnet_acl.parquet", rows=called, n_examples=n, counts={"words": words})
                for name, called, n, words in (
                    ("train", "train", 541, 2_121_685),
                    ("validation", "dev", 80, 313_884),
                    ("test", "test", 80, 321_879))}),
    Corpus(
        "hotpotqa-paragraphs", "CC BY-SA 4.0 (not checked)",
        "hotpotqa.github.io, by way of public copies of parts of it", folder="hotpotqa",
        read=rows.next_sentences(held_out=10),
        part_of="HotpotQA: 1,279 of 3,075 questions, whose first supporting paragraph has three sentences or more: all "
                "but the first of these are wanted",
        splits={
            "train": Split("nine in ten of the training questions", "train.parquet", n_examples=853),
            "validation": Split("every tenth of them", "train.parquet", n_examples=95),
            "test": Split("development questions", "validation.parquet", n_examples=331)}),
    Corpus(
        "arxiv", "none stated; the papers are their authors'", "ccdv/arxiv-summarization", folder="arxiv",
        origin=sources.arxiv, read=rows.summaries(document="article", summary="abstract", title=None, id=None),
        splits={name: Split(f"{n:,} papers at the source, less those without a text", f"{name}-*-of-*.parquet")
                for name, n in sources.ARXIV_ROWS.items()}),
    Corpus(
        "wikisum", "CC BY-SA 3.0 (the leads); the sources are their publishers'",
        "Wikipedia, what it cites and what a search finds, gathered by yourself and built by data_scripts/wikisum.py",
        folder="wikisum", read=rows.summaries(),
        splits={name: Split(f"{share} of all articles, 1.9 million of 2.3 in the paper" if name == "train" else share,
                            f"{name}-*.parquet")
                for name, share in (("train", "80 %"), ("validation", "10 %"), ("test", "10 %"))}),
    *(Corpus(
        f"wmt14-{source}-{target}", "none stated", "wmt/wmt14", folder="wmt14", origin=sources.wmt14,
        read=rows.summaries(document=source, summary=target, title=None, id=None),
        part_of="WMT-14, English and French: its development and test sentences, none of 41 million of training",
        splits={split: Split("complete", f"{split}-*-of-*.parquet", n_examples=n)
                for split, n in sources.WMT14_ROWS.items()})
      for source, target in (("en", "fr"), ("fr", "en"))),
    Corpus(
        "synthetic-articles", "MIT, written by this package", "embedded", read=rows.generated[examples.Summary],
        generator=synthetic_articles.ARTICLES,
        splits={split: Split("articles of known best log-perplexity", n_examples=n)
                for split, n in synthetic_articles.SIZES.items()}),
]

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

IMAGES_AND_SOUND = [
    Corpus(
        "cifar10", "none stated; for research", "uoft-cs/cifar10", folder="cifar10-full", read=rows.images(),
        labels=CIFAR10, origin=sources.cifar10,
        splits={
            "train": Split("complete", "train-*-of-*.npz", n_examples=50_000, counts=dict.fromkeys(CIFAR10, 5_000)),
            "test": Split("complete", "test-*-of-*.npz", n_examples=10_000, counts=dict.fromkeys(CIFAR10, 1_000)),
        }),
    Corpus(
        "cifar10-subset", "none stated; for research",
        "cs.toronto.edu/~kriz/cifar.html, by way of public copies of parts of it", folder="cifar10",
        read=rows.images(), labels=CIFAR10,
        part_of="CIFAR-10: 8,068 of 50,000 training and 1,017 of 10,000 test images",
        splits={
            "train": Split("8,068 images", "train.npz", n_examples=8_068, counts=dict(zip(
                CIFAR10, (810, 777, 808, 783, 856, 782, 808, 799, 835, 810), strict=True))),
            "test": Split("1,017 images", "test.npz", n_examples=1_017, counts=dict(zip(
                CIFAR10, (105, 93, 100, 104, 92, 87, 114, 102, 110, 110), strict=True))),
        }),
    Corpus(
        "piano-bach", "CC0 1.0", "Wikimedia Commons: Bach played by Kimiko Ishizaka, by way of a public copy",
        folder="piano-audio", read=rows.recordings(rate=12_000),
        splits={name: Split(what, "ishizaka_bach_12khz_mulaw.parquet", rows=name, n_examples=n,
                            counts={"samples": samples})
                for name, what, n, samples in (
                    ("train", "ten pieces", 10, 15_682_881),
                    ("validation", "Prelude 5", 1, 1_111_520),
                    ("test", "Fugue 10", 1, 1_075_040))}),
    Corpus(
        "synthetic-images", "MIT, written by this package", "embedded", read=rows.generated[examples.Image],
        generator=synthetic_images.IMAGES, labels=synthetic_images.LABELS,
        splits={split: Split("images whose rows repeat, of known fewest bits", n_examples=n)
                for split, n in synthetic_images.SIZES.items()}),
    Corpus(
        "synthetic-sound", "MIT, written by this package", "embedded", read=rows.generated[examples.Audio],
        generator=synthetic_sound.SOUND,
        splits={split: Split("clips of lasting notes, of known fewest bits", n_examples=n)
                for split, n in synthetic_sound.SIZES.items()}),
]

# Web pages that contain tasks, and each of these tasks by itself.
PAGES = Corpus(
    "synthetic-web", "MIT, written by this package", "embedded", read=readers.generated_books,
    generator=synthetic_web.WEB["pages"],
    splits={split: Split("web pages that contain tasks", n_documents=n) for split, n in synthetic_web.SIZES.items()})
WEB_TASKS = [
    Corpus(
        f"synthetic-{kind.replace(' ', '-')}", "MIT, written by this package", "embedded", read=rows.generated[row],
        generator=synthetic_web.WEB[kind],
        splits={split: Split(f"{kind}, as they stand in the pages of synthetic-web", n_examples=n)
                for split, n in synthetic_web.SIZES.items()})
    for kind, row in (("last words", examples.Cloze), ("clozes", examples.MultipleChoice),
                      ("questions", examples.Question), ("summaries", examples.Summary),
                      ("translations", examples.Summary))]
TEXT.append(PAGES)

DECLARED = [*TEXT, *LABELLED, *QUESTIONS, *COREFERENCE, *SUMMARIES, *WEB_TASKS, *IMAGES_AND_SOUND]
_BY_NAME = _by_name(DECLARED)

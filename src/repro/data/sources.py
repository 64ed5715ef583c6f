"""Where corpora come from: what is on the hub, and the files that its rows become."""

import io
import lzma
from collections.abc import Callable

import numpy as np

from repro.data.fetch import Hub, Part

WIKITEXT2_ROWS = {"train": 36_718, "validation": 3_760, "test": 4_358}
WIKITEXT103_ROWS = WIKITEXT2_ROWS | {"train": 1_801_350}
PG19_ROWS = {"train": 28_602, "validation": 50, "test": 100}


def wikitext2(rows: dict[str, int] = WIKITEXT2_ROWS) -> Hub:
    """WikiText-2 raw: the validation and test text of WikiText-103, and 2% of its training text."""
    return _wikitext("wikitext-2-raw-v1", rows, [(0, rows["train"], "wikitext-2.train.parquet")])


def wikitext103(rows: dict[str, int] = WIKITEXT103_ROWS, per_file: int = 100_000) -> Hub:
    """WikiText-103 raw."""
    cuts = _cuts(rows["train"], per_file)
    return _wikitext("wikitext-103-raw-v1", rows, [
        (*cut, f"wikitext-103.train-{k:02}-of-{len(cuts):02}.parquet") for k, cut in enumerate(cuts)])


def wikitext103_unk(rows: dict[str, int] = WIKITEXT2_ROWS) -> Hub:
    """The validation and test text of WikiText-103 with <unk> for rare words."""
    return _wikitext("wikitext-103-v1", {split: rows[split] for split in ("validation", "test")}, [], "tokens")


def _wikitext(config: str, rows: dict[str, int], train: list[tuple[int, int, str]], kind: str = "raw") -> Hub:
    """A row is a line, "" standing for the blank line " \\n" of the original files. train: (start, stop, file)."""
    def line(row: dict) -> str:
        return row["text"] or " \n"

    def xz(lines: list[str]) -> list[bytes]:
        return [lzma.compress("".join(lines).encode())]

    def parquet(lines: list[str]) -> list[bytes]:
        return [_parquet({"text": ["".join(lines)]})]

    parts = [Part(split, 0, rows[split], (file,), line, xz)
             for split, file in (("validation", f"wiki.valid.{kind}.xz"), ("test", f"wiki.test.{kind}.xz"))]
    parts += [Part("train", start, stop, (file,), line, parquet) for start, stop, file in train]
    return Hub("Salesforce/wikitext", config, "b08601e04326c79dfdd32d625aee71d232d685c3", rows, parts)


def pg19(rows: dict[str, int] = PG19_ROWS, per_file: int = 500) -> Hub:
    """The whole of PG-19: a row is a book."""
    cuts = _cuts(rows["train"], per_file)
    parts = [Part(split, 0, rows[split], (f"{split}.parquet",), _book, _shelf) for split in ("validation", "test")]
    parts += [Part("train", start, stop, (f"train-{k:02}-of-{len(cuts):02}.parquet",), _book, _shelf)
              for k, (start, stop) in enumerate(cuts)]
    return Hub("emozilla/pg19", None, None, rows, parts)


def pg19_part(ids: dict[str, tuple[int, ...]], rows: dict[str, int] = PG19_ROWS, per_file: int = 5_000) -> Hub:
    """The books of PG-19 with `ids` (split here: ids), wherever they are in the source; a part has one file a split."""
    wanted = {number for numbers in ids.values() for number in numbers}

    def convert(row: dict) -> dict | None:
        book = _book(row)
        return book if book["id"] in wanted else None

    def write(found: list[dict]) -> list[bytes]:
        return [_shelf([book for book in found if book["id"] in numbers])[0] for numbers in ids.values()]

    stretches = [(split, *cut) for split, total in rows.items() for cut in _cuts(total, per_file)]
    parts = [Part(split, start, stop, tuple(f"{name}-{k:02}-of-{len(stretches):02}.parquet" for name in ids),
                  convert, write) for k, (split, start, stop) in enumerate(stretches)]
    return Hub("emozilla/pg19", None, None, rows, parts)


IMDB_ROWS = {"train": 25_000, "test": 25_000}
HOTPOTQA_ROWS = {"train": 90_447, "validation": 7_405}
WIKIHOP_ROWS = {"train": 43_738, "validation": 5_129}
TRIVIAQA_ROWS = {"train": 61_888, "validation": 7_993}
CIFAR10_ROWS = {"train": 50_000, "test": 10_000}


def imdb(rows: dict[str, int] = IMDB_ROWS, per_file: int = 25_000) -> Hub:
    """IMDB's labelled reviews."""
    return _tables("stanfordnlp/imdb", None, rows, per_file, "parquet", _review, _table)


def hotpotqa(rows: dict[str, int] = HOTPOTQA_ROWS, per_file: int = 10_000) -> Hub:
    """HotpotQA in its distractor setting: ten paragraphs a question."""
    return _tables("hotpotqa/hotpot_qa", "distractor", rows, per_file, "parquet", _question, _table)


def wikihop(rows: dict[str, int] = WIKIHOP_ROWS, per_file: int = 10_000) -> Hub:
    """WikiHop, of QAngaroo 1.1: a question, its candidates, and the paragraphs that support them."""
    return _tables("community-datasets/qangaroo", "wikihop", rows, per_file, "parquet", _candidates, _table)


def triviaqa(rows: dict[str, int] = TRIVIAQA_ROWS, per_file: int = 2_000) -> Hub:
    """TriviaQA with articles of Wikipedia, one or more a question; the answers of its test questions are hidden."""
    return _tables("mandarjoshi/trivia_qa", "rc.wikipedia", rows, per_file, "parquet", _trivia, _table)


def cifar10(rows: dict[str, int] = CIFAR10_ROWS, per_file: int = 10_000) -> Hub:
    """CIFAR-10."""
    return _tables("uoft-cs/cifar10", None, rows, per_file, "npz", _picture, _pictures)


MULTINLI_ROWS = {"train": 392_702, "validation_matched": 9_815, "validation_mismatched": 9_832}
QNLI_ROWS = {"train": 104_743, "validation": 5_463}
QQP_ROWS = {"train": 363_846, "validation": 40_430}
SNLI_ROWS = {"train": 550_152, "validation": 10_000, "test": 10_000}
SCITAIL_ROWS = {"train": 23_596, "validation": 1_304, "test": 2_126}


def multinli(rows: dict[str, int] = MULTINLI_ROWS, per_file: int = 100_000) -> Hub:
    """MultiNLI with its two development sets: of the genres of the training set, and of others."""
    return _tables("nyu-mll/multi_nli", None, rows, per_file, "parquet", _pair("premise", "hypothesis"), _table)


def qnli(rows: dict[str, int] = QNLI_ROWS, per_file: int = 100_000) -> Hub:
    """QNLI of GLUE, which keeps the labels of the test set to itself."""
    return _tables("nyu-mll/glue", "qnli", rows, per_file, "parquet", _pair("question", "sentence"), _table)


def qqp(rows: dict[str, int] = QQP_ROWS, per_file: int = 100_000) -> Hub:
    """Quora's question pairs, of GLUE, which keeps the labels of the test set to itself."""
    return _tables("nyu-mll/glue", "qqp", rows, per_file, "parquet", _pair("question1", "question2"), _table)


def snli(rows: dict[str, int] = SNLI_ROWS, per_file: int = 100_000) -> Hub:
    """SNLI; the pairs on which its annotators did not agree have no label and are left out."""
    return _tables("stanfordnlp/snli", None, rows, per_file, "parquet", _pair("premise", "hypothesis"), _table)


def scitail(rows: dict[str, int] = SCITAIL_ROWS, per_file: int = 100_000) -> Hub:
    """SciTail, in the layout of SNLI."""
    return _tables("allenai/scitail", "snli_format", rows, per_file, "parquet",
                   _pair("sentence1", "sentence2", "gold_label"), _table)


WMT14_ROWS = {"validation": 3_000, "test": 3_003}


def wmt14(rows: dict[str, int] = WMT14_ROWS, per_file: int = 4_000) -> Hub:
    """English and French sentences of WMT-14: newstest 2013 and 2014. Its 41 million of training are not taken: a
    language model is tried as it is."""
    return _tables("wmt/wmt14", "fr-en", rows, per_file, "parquet", _translation, _table)


ARXIV_ROWS = {"train": 203_037, "validation": 6_436, "test": 6_440}


def arxiv(rows: dict[str, int] = ARXIV_ROWS, per_file: int = 10_000) -> Hub:
    """Papers of arXiv with their abstracts (Cohan et al. 2018); papers without a text are left out."""
    return _tables("ccdv/arxiv-summarization", "document", rows, per_file, "parquet", _paper, _table)


def _paper(row: dict) -> dict | None:
    paper = {"article": row["article"], "abstract": row["abstract"]}
    return paper if all(text.strip() for text in paper.values()) else None


def _translation(row: dict) -> dict:
    return {"en": row["translation"]["en"], "fr": row["translation"]["fr"]}


def _pair(text: str, pair: str, label: str = "label") -> Callable[[dict], dict | None]:
    """Keeps a pair of texts and its label; a pair without a label, or with an empty text, is left out."""
    def convert(row: dict) -> dict | None:
        if row[label] in (-1, "-") or not (row[text] or "").strip() or not (row[pair] or "").strip():
            return None
        return {"text": row[text], "pair": row[pair], "label": row[label]}
    return convert


def _tables(name: str, config: str | None, rows: dict[str, int], per_file: int, suffix: str,
            convert: Callable[[dict], dict | None], write: Callable[[list[dict]], list[bytes]]) -> Hub:
    """Every split in files of `per_file` rows."""
    parts = []
    for split, total in rows.items():
        cuts = _cuts(total, per_file)
        parts += [Part(split, *cut, (f"{split}-{k:02}-of-{len(cuts):02}.{suffix}",), convert, write)
                  for k, cut in enumerate(cuts)]
    return Hub(name, config, None, rows, parts)


def _review(row: dict) -> dict:
    return {"text": row["text"], "label": row["label"]}


def _question(row: dict) -> dict:
    """Flat columns. A supporting fact beyond its paragraph's sentences, as some have at the source, names no sentence.
    """
    context, facts = row["context"], row["supporting_facts"]
    lengths = {title: len(sentences) for title, sentences in zip(context["title"], context["sentences"], strict=True)}
    numbers = [number if number < lengths.get(title, 0) else None
               for title, number in zip(facts["title"], facts["sent_id"], strict=True)]
    return {key: row[key] for key in ("id", "question", "answer", "type", "level")} | {
        "context_titles": context["title"], "context_sentences": context["sentences"],
        "supporting_titles": facts["title"], "supporting_sent_ids": numbers}


def _trivia(row: dict) -> dict:
    """Flat columns. aliases: all right answers but the first."""
    answer, pages = row["answer"], row["entity_pages"]
    return {"id": row["question_id"], "question": row["question"], "answer": answer["value"],
            "aliases": [alias for alias in answer["aliases"] if alias != answer["value"]],
            "titles": list(pages["title"]), "documents": list(pages["wiki_context"])}


def _candidates(row: dict) -> dict:
    return {key: row[key] for key in ("id", "query", "answer", "candidates", "supports")}


def _table(found: list[dict]) -> list[bytes]:
    import pyarrow
    import pyarrow.parquet

    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(found), buffer, compression="zstd", row_group_size=1_000)
    return [buffer.getvalue()]


def _picture(row: dict) -> dict:
    return {"image": np.asarray(row["img"], np.uint8), "label": row["label"]}


def _pictures(found: list[dict]) -> list[bytes]:
    buffer = io.BytesIO()
    np.savez(buffer, image=np.stack([one["image"] for one in found]),
             label=np.array([one["label"] for one in found], np.uint8))
    return [buffer.getvalue()]


def _cuts(total: int, size: int) -> list[tuple[int, int]]:
    return [(start, min(start + size, total)) for start in range(0, total, size)]


def _book(row: dict) -> dict:
    return {"id": int(row["url"].rstrip("/").rsplit("/", 1)[-1]), "title": row["short_book_title"],
            "year": row["publication_date"], "text": row["text"]}


def _shelf(found: list[dict]) -> list[bytes]:
    return [_parquet({key: [book[key] for book in found] for key in ("id", "title", "year", "text")})]


def _parquet(columns: dict[str, list]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    kinds = {"id": pyarrow.int32(), "title": pyarrow.string(), "year": pyarrow.int32(), "text": pyarrow.large_string()}
    buffer = io.BytesIO()
    table = pyarrow.table({key: pyarrow.array(values, kinds[key]) for key, values in columns.items()})
    pyarrow.parquet.write_table(table, buffer, compression="zstd", row_group_size=32)
    return buffer.getvalue()

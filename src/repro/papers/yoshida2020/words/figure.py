"""The figure of the loss that recurrence saves on each word: numbers from records, words from the corpus."""

from statistics import fmean

from repro.data.excerpts import digest, excerpt
from repro.errors import ReproError
from repro.markup import signed
from repro.study import ArtifactContext, Experiment, Record


def passage(source, book: int) -> tuple[str, list[str]]:
    """The name of a test text and its documents: one book, or all parts of a continuous text.

    Raises ReproError for a book that does not exist.
    """
    documents = source.documents("test")
    if book >= (1 if source.joined else len(documents)):
        raise ReproError(f"book is {book}, but the test text of {source.name} has books 0 to "
                         f"{0 if source.joined else len(documents) - 1}.")
    if source.joined:
        return f"the test text of {source.name}", [one.text for one in documents]
    return f"{documents[book].id} of {source.name}", [documents[book].text]


def page_figure(context: ArtifactContext, parent: Experiment):
    """The pages of the text that `parent` tests on, for each scale with records."""
    from repro.plotting import draw_words

    pages = []
    for scale in reversed(context.scales):
        for config in context.plan(scale, corpus=parent.scales[scale]["corpus"]):
            if records := context.records_of(config):
                place = ("first", "second")[config.insert_layer]
                pages.append(page_of(f"{scale}, windows of {config.window}, {place} block", records))
    return draw_words(pages)


def page_of(title: str, records: list[Record]):
    """The page of records that differ only in their seeds; the savings are means over them."""
    from repro.plotting import Page, Word

    first = records[0]
    page, source = first.documents["page"], first.notes["text"]
    pairs = [zip(record.documents["page"]["baseline"], record.documents["page"]["recurrent"], strict=True)
             for record in records]
    saved = [fmean(baseline - recurrent for baseline, recurrent in some) for some in zip(*pairs, strict=True)]
    text = text_of(first)
    shown, begins = words_in(text, page)
    words = [Word(*row) for row in zip(shown, saved, page["kind"], page["window"], begins, strict=True)]
    masked = fmean(record.metrics["saved_masked"] for record in records)
    note = f"With its module masked out the same model saves {signed(masked, '.1f')} nats. Text: {source}."
    if text is None:
        note += (" Words are shown as dots because the scored text is not on this machine. Set REPRO_DATA to the "
                 "folder that has it.")
    return Page(title, words, note)


def text_of(record: Record) -> str | None:
    """The page that a record scored, from its corpus or from the package's excerpts; None if neither has it."""
    from repro.data import corpus

    source, wanted = corpus(record.data["name"]), record.notes["sha256"]
    if source.available():
        page = record.documents["page"]
        text = "".join(passage(source, record.config["book"])[1])[page["start"][0]:page["stop"][-1]]
        if digest(text) == wanted:
            return text
    return excerpt(wanted)


def words_in(text: str | None, page: dict[str, list[int]]) -> tuple[list[str], list[bool]]:
    """The words of a page, and whether each begins a paragraph. `text` starts at the first word; without it, words are
    dots."""
    first = page["start"][0]
    places = [(start - first, stop - first) for start, stop in zip(page["start"], page["stop"], strict=True)]
    if text is None:
        return ["·" * (stop - start) for start, stop in places], [False] * len(places)
    gaps = [text[end:start] for (_, end), (start, _) in zip(places, places[1:], strict=False)]
    return [text[start:stop] for start, stop in places], [False, *(gap.count("\n") > 1 for gap in gaps)]

"""WikiSum from gathered articles: clones go, splits stay, and a build that was stopped goes on."""

import gzip
import json
import random
from collections import Counter

import pytest

from repro.data.extraction import words
from repro.data.wikisum import article, build, is_clone, split_of
from repro.errors import ReproError

LEAD = "Ada Lovelace wrote the first program"


def test_a_clone_has_more_than_half_of_the_leads_words_in_one_stretch():
    assert not is_clone(LEAD, "Ada Lovelace wrote letters")  # half is not more than half
    assert is_clone(LEAD, "Ada Lovelace wrote the letters")
    far = " ".join(["word"] * 30)
    assert is_clone(LEAD, f"{far} Ada Lovelace wrote the first {far}")
    assert not is_clone(LEAD, f"Ada Lovelace {far} wrote the {far} first program")


def test_a_stretch_that_begins_at_word_5_is_a_clone():
    """Six words of the lead, so stretches of 18: its words 5 to 22 have four of them, any other stretch has three."""
    def spread(between):
        return " ".join(["word"] * 5 + ["Ada", "Lovelace", "wrote"] + ["word"] * between + ["the"] + ["word"] * 30)
    assert is_clone(LEAD, spread(14)) and not is_clone(LEAD, spread(15))


def test_clones_are_those_of_every_stretch_written_out():
    generator, found = random.Random(0), Counter()
    for _ in range(400):
        lead, told = ([generator.choice("abcdefghijklmnop") + generator.choice(["", ".", "-a"])
                       for _ in range(generator.randint(1, most))] for most in (6, 40))
        size, wanted = 3 * len(lead), set(words(" ".join(lead)))
        clone = any(2 * len(wanted & set(words(" ".join(told[start:start + size])))) > len(wanted)
                    for start in range(max(len(told) - size, 0) + 1))
        assert is_clone(" ".join(lead), " ".join(told)) == clone, (lead, told)
        found[clone] += 1
    assert min(found[True], found[False]) > 50, "both kinds were tried"
    assert not is_clone("...", "... a b c") and not is_clone(LEAD, "")


def test_an_article_is_what_is_left():
    row = {"title": "Ada", "lead": LEAD, "citations": ["She wrote letters to Babbage", LEAD], "search": ["a b c d e"]}
    assert article(row)["document"] == "She wrote letters to Babbage\na b c d e"
    assert article(row, 7)["document"] == "She wrote letters to Babbage\na b"
    assert article(row | {"citations": ["a\nb\tc  d e"]}, 2)["document"] == "a\nb", "whatever stands between words"
    assert article(row | {"citations": [LEAD], "search": []}) is None
    with pytest.raises(ReproError, match="an article has no lead"):
        article({"title": "Ada"})


def test_splits_have_their_shares():
    found = Counter(split_of(f"article {k}") for k in range(4_000))
    assert [round(found[name] / 4_000, 1) for name in ("train", "validation", "test")] == [0.8, 0.1, 0.1]


def lines(n, first=0):
    return [json.dumps({"title": f"t{k}", "lead": LEAD, "search": [f"text {k}"]}) for k in range(first, first + n)]


def written(path, told):
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as file:
        file.write("\n".join(told))
    return path


def titles(folder):
    import pyarrow.parquet as parquet

    return sorted(row["title"] for path in folder.glob("*.parquet") for row in parquet.read_table(path).to_pylist())


def refused(told, *given, **settings):
    with pytest.raises(ReproError, match=told) as error:
        build(*given, **settings)
    assert "\n" not in str(error.value)


def test_a_build_goes_on_where_it_was_stopped(tmp_path):
    source, folder, told = tmp_path / "articles.jsonl.gz", tmp_path / "wikisum", lines(23)
    written(source, [*told[:12], "{broken", *told[12:]])
    refused("articles.jsonl.gz, line 13: it is no JSON .*; take it out", source, folder, shard=10)
    first = {path.name: path.stat().st_mtime_ns for path in folder.glob("*-00000.*")}
    written(source, told)
    counts = build(source, folder, shard=10)
    assert sum(counts.values()) == 23
    assert len(first) > 1 and first == {path.name: path.stat().st_mtime_ns for path in folder.glob("*-00000.*")}
    assert titles(folder) == sorted(f"t{k}" for k in range(23))
    assert counts["test"] == sum(split_of(f"t{k}") == "test" for k in range(23))
    assert build(source, folder, shard=10) == counts
    refused("there is no", tmp_path / "none.jsonl", folder)


def test_lines_behind_whole_stretches_are_added(tmp_path):
    source, folder = tmp_path / "articles.jsonl", tmp_path / "wikisum"
    assert sum(build(written(source, lines(20)), folder, shard=10).values()) == 20
    assert sum(build(written(source, lines(23)), folder, shard=10).values()) == 23
    assert titles(folder) == sorted(f"t{k}" for k in range(23))


def test_a_file_of_a_stretch_that_was_not_finished_is_not_kept(tmp_path):
    source, folder = written(tmp_path / "articles.jsonl", lines(1)), tmp_path / "wikisum"
    build(written(tmp_path / "other.jsonl", lines(30, 100)), folder)
    (folder / "stretch-00000.json").unlink()
    assert sum(build(source, folder).values()) == 1 and titles(folder) == ["t0"]


@pytest.mark.parametrize(("change", "settings", "told"), [
    (lambda told: told, {"shard": 8}, "stretch-00000.json was built with shard=10, not 8; pass shard=10, or delete"),
    (lambda told: told, {"most_words": 7}, "built with most_words=20000, not 7; pass most_words=20000, or delete"),
    (lambda told: [told[0].replace("text 0", "text 9"), *told[1:]], {},  # of the same size
     "lines 1 to 10 of .*articles.jsonl are not those that .*stretch-00000.json was built from; .* delete .* again"),
    (lambda told: [*told, *lines(1, 23)], {}, "lines 21 to 24 of .* are not those that .*stretch-00002.json"),
    (lambda told: told[:-1], {}, "lines 21 to 22 of .* are not those that .*stretch-00002.json"),
    (lambda told: [*told[:11], "", *told[11:]], {}, "lines 11 to 21 of .*stretch-00001.json"),
    (lambda told: told[:20], {}, "-00002.* was built from lines that .*articles.jsonl no longer has; .* delete")])
def test_a_folder_that_was_begun_otherwise_is_refused(tmp_path, change, settings, told):
    source, folder = written(tmp_path / "articles.jsonl", lines(23)), tmp_path / "wikisum"
    build(source, folder, shard=10)
    before = titles(folder)
    refused(told, written(source, change(lines(23))), folder, **{"shard": 10} | settings)
    assert titles(folder) == before


def test_a_stretch_of_an_older_version_is_refused(tmp_path):
    source, folder = written(tmp_path / "articles.jsonl", lines(3)), tmp_path / "wikisum"
    folder.mkdir()
    (folder / "stretch-00000.json").write_text('{"train": 3, "validation": 0, "test": 0}')
    refused("stretch-00000.json does not say what it was built from; delete", source, folder)


@pytest.mark.parametrize(("line", "told"), [
    ("[1, 2]", r"an article is \[1, 2\]; it must be an object"), ("null", "an article is None; it must be an object"),
    ('"a\\nb"', "an article is 'a"), ("7", "an article is 7"), ('{"title": "t"}', "an article has no lead"),
    ('{"lead": "t"}', "an article has no title"), ('{"title": 5, "lead": "a"}', "title of an article is 5; .* text"),
    ('{"title": "t", "lead": ["a"]}', "the lead of an article is .'a'.; it must be text"),
    ('{"title": "t", "lead": "a", "citations": null}', r"citations of an article is None; .* a list of texts, \[\]"),
    ('{"title": "t", "lead": "a", "citations": "text"}', "citations of an article is 'text'; it must be a list"),
    ('{"title": "t", "lead": "a", "citations": {"a": "b"}}', "citations of an article is {'a': 'b'}; .* a list"),
    ('{"title": "t", "lead": "a", "citations": ["b", 3]}', "citations of an article has 3 in it"),
    ('{"title": "t", "lead": "a", "search": ["b", null]}', "search of an article has None in it")])
def test_a_line_that_is_no_article_is_named(tmp_path, line, told):
    source = written(tmp_path / "articles.jsonl", [*lines(2), "", line, *lines(2, 2)])
    refused(f"articles.jsonl, line 4: .*{told}", source, tmp_path / "wikisum")
    assert not list(tmp_path.glob("wikisum/*"))


@pytest.mark.parametrize(("spoil", "told"), [
    (lambda whole: whole[:-20], "articles.jsonl.gz behind line [1-9].*: Compressed file ended .*; gather or copy"),
    (lambda whole: b"no gzip at all", "articles.jsonl.gz behind line 0: Not a gzipped file"),
    (lambda whole: whole[:20] + bytes([7] * 40) + whole[60:], "cannot read .*articles.jsonl.gz behind line 0: "),
    (lambda whole: gzip.compress(b'{"title": "\xff"}'), "cannot read .* 'utf-8' codec can't decode byte 0xff")])
def test_a_broken_source_is_named(tmp_path, spoil, told):
    source = written(tmp_path / "articles.jsonl.gz", [random.Random(k).randbytes(99).hex() for k in range(2_000)])
    source.write_bytes(spoil(source.read_bytes()))
    refused(told, source, tmp_path / "wikisum", shard=10_000)
    refused("cannot read .* Is a directory", tmp_path, tmp_path / "wikisum")
    assert not list(tmp_path.glob("wikisum/*"))


@pytest.mark.parametrize(("line", "told"), [
    ('{"title": "\\ud800", "lead": "x"}', "the title of an article is"),
    ('{"title": "x", "lead": "  "}', "an article has no lead"),
    ('{"title": "x", "lead": "y", "search": ["a", "\\udfff"]}', "search of an article has"),
    ("[" * 100_000, "it is no JSON")])
def test_a_line_that_no_file_could_hold_is_named(tmp_path, line, told):
    source = written(tmp_path / "articles.jsonl", [*lines(2), line])
    refused(f"articles.jsonl, line 3: {told}", source, tmp_path / "wikisum")


def test_a_source_without_articles_is_refused(tmp_path):
    refused("empty.jsonl has no articles", written(tmp_path / "empty.jsonl", ["", ""]), tmp_path / "wikisum")


@pytest.mark.parametrize("name", ["shard", "most_words"])
def test_nothing_at_a_time_is_refused(tmp_path, name):
    source = written(tmp_path / "articles.jsonl", lines(1))
    refused(f"{name} is 0; it must be at least 1", source, tmp_path / "wikisum", **{name: 0})

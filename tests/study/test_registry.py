"""Papers are found by the names of their packages, and no two of them declare one id."""

import importlib
import sys

import pytest

from repro.errors import ReproError
from repro.study import Artifact, artifact, registry

TABLE = """
from repro.study import Artifact, register

register(Artifact(id="{id}", paper="{paper}", title="", chapter="", experiment="none", source="", build=print))
"""
DECLARED = {  # what a paper's package declares besides its tables
    "paper": 'Paper(id="{name}", name="Toy", cite="toy", idea="play", part="Toys", chapters=(90, 90))',
    "experiment": """Experiment(name="{name}-run", paper="{name}", summary="", config=RunConfig, scales={{}},
    execute=print, estimate=print)""",
    "claim": """Claim(id="{name}-claim", paper="{name}", sentence="It helps.", source="", experiment="{name}-run",
    measure=print, direction="lower", unit="exact", why_no_paper_effect="a toy")"""}


def init(name, *left_out):
    """The `__init__` of a paper's package, with all but a kind of declaration."""
    lines = ["from repro.study import Claim, Experiment, RunConfig, register", "from repro.study.paper import Paper",
             *(f"register({text})" for kind, text in DECLARED.items() if kind not in left_out)]
    return "\n".join(lines).format(name=name)


@pytest.fixture
def papers(tmp_path, monkeypatch):
    """Writes packages of papers, {package: {module: text}}, and lets the study find them instead of its own."""
    def write(packages):
        name = "papers_of_a_test"
        _write(tmp_path / name, {"__init__": "", "beside": "raise SystemExit('no package of a paper')"})
        for package, modules in packages.items():
            _write(tmp_path / name / package, {"__init__": init(package)} | modules)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(registry, "PACKAGE", name)
        monkeypatch.setattr(registry, "_declared", {})
        monkeypatch.setattr(registry, "_modules", {})
        monkeypatch.setattr(registry, "_discover", registry._discover.__wrapped__)
        importlib.invalidate_caches()
        return name

    yield write
    for module in [module for module in sys.modules if module.partition(".")[0] == "papers_of_a_test"]:
        del sys.modules[module]


def _write(folder, modules):
    folder.mkdir(exist_ok=True)
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)


def test_every_module_of_every_package_is_found(papers):
    papers({"two2021": {"tables": TABLE.format(id="b", paper="two2021")},
            "one2020": {"tables": TABLE.format(id="c", paper="one2020"),
                        "figures": TABLE.format(id="a", paper="one2020")}})
    assert registry.packages() == ["one2020", "two2021"]
    registry._discover()  # once, as `registry.declared` asks for it
    found = registry._declared[Artifact]
    assert list(found) == ["a", "c", "b"]
    assert {id: registry.package(one) for id, one in found.items()} == {"a": "one2020", "c": "one2020", "b": "two2021"}


def test_two_papers_that_declare_one_id_are_told_apart_in_one_line(papers):
    name = papers({"one2020": {"tables": TABLE.format(id="table1", paper="one2020")},
                   "two2021": {"numbers": TABLE.format(id="table1", paper="two2021")}})
    with pytest.raises(ReproError) as refused:
        artifact("table1")
    assert str(refused.value) == (f"artifact 'table1' is declared twice, in {name}.one2020.tables and in "
                                  f"{name}.two2021.numbers; rename one of them.")


@pytest.mark.parametrize("kind", DECLARED)
def test_a_paper_without_one_of_its_parts_is_refused_in_one_line(papers, kind):
    tables = TABLE.format(id="table1", paper="toy2020")
    name = papers({"toy2020": {"tables": tables, "__init__": init("toy2020", kind)}})
    with pytest.raises(ReproError) as refused:
        artifact("table1")
    assert str(refused.value) == (f"package {name}.toy2020 declares no {kind}; register at least one, or move the "
                                  'package away (CONTRIBUTING.md, "A paper").')


def test_a_paper_is_called_what_its_package_is(papers):
    name = papers({"toy2020": {"tables": TABLE.format(id="table1", paper="toy2020"), "__init__": init("toy2021")}})
    with pytest.raises(ReproError) as refused:
        artifact("table1")
    assert str(refused.value) == f"the Paper of package {name}.toy2020 has another id; its id must be 'toy2020'."


def test_a_paper_is_cited_by_its_first_author_and_year():
    for name, citation in {"gpt1_2018": "Radford et al. (2018)", "gpt2_2019": "Radford et al. (2019)",
                           "liu2018": "Liu et al. (2018)", "longformer2020": "Beltagy et al. (2020)",
                           "sparse2019": "Child et al. (2019)", "yoshida2020": "Yoshida et al. (2020)"}.items():
        assert registry.cited(name) == citation
    assert registry.cited("toy2020") == "toy2020"


@pytest.mark.parametrize(("authors", "told"), [("Ada van Dyk", "Ada van Dyk"), ("Dyk and Lee", "Dyk and Lee"),
                                               ("Dyk et al.", "Dyk et al."), ("Dyk, Lee and Ray", "Dyk et al.")])
def test_few_authors_are_all_named(monkeypatch, authors, told):
    monkeypatch.setattr(registry, "title", lambda paper: f"{authors} (2020), Toys")
    assert registry.cited("toy2020") == f"{told} (2020)"

# corpus -> base model -> run -> record -> chapter -> book. A step is redone when the content it depends on has changed.
# make calls this; by hand: snakemake runs --profile profiles/local --cores 2 --config scale=small
import functools, hashlib, json, os, shlex, sys
from pathlib import Path

from repro.openmp import sleep_while_waiting
from repro.pages.chapters import papers_of
from repro.study import Run, Store, experiment, experiments, kept_model, plan
from repro.study.cache import caching
from repro.study.registry import package
from repro.study.settings import sha256

SCALE = config.get("scale", "smoke")
CHAPTERS = sorted(path.stem for path in Path("notebooks").glob("[0-9]*.ipynb"))
NOTEBOOKS = expand("build/chapters/{scale}/{name}.ipynb", scale=SCALE, name=CHAPTERS)

os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
os.environ.update(MALLOC_TRIM_THRESHOLD_="-1", MALLOC_MMAP_MAX_="0")  # freed memory is kept: faster training on a CPU
sleep_while_waiting()


def digest(*names):
    """One hash over the content of files and folders: touching a file or cloning again changes nothing."""
    files = [file for path in map(Path, names) for file in (path.rglob("*") if path.is_dir() else [path])]
    files = sorted(file for file in files if file.is_file() and "__pycache__" not in file.parts)
    return sha256([(str(file), hashlib.sha256(file.read_bytes()).hexdigest()) for file in files])


def cells(name):
    """A hash of what a chapter says and does, without its stored outputs."""
    notebook = json.loads(Path(f"notebooks/{name}.ipynb").read_text())
    return sha256([(cell["cell_type"], cell["source"], cell["metadata"]) for cell in notebook["cells"]])


@functools.cache
def code(*papers):
    """A hash of all that a run or a chapter of these papers is made by: their packages and the rooms below."""
    above = {"papers", "bench", "cli.py", "doctor.py", "batch.py", "__main__.py"}  # they make no record and no page
    below = [path for path in Path("src/repro").iterdir() if path.name not in above]
    own = [Path("src/repro/papers", name) for name in sorted({"base", *papers})]
    return digest(*below, *own, *Path("src/repro/papers").glob("*.py"), "constraints.txt")


@functools.cache
def runs(scale):
    """Every run of a scale, with the runs that it needs (base models), by the hash of its config."""
    return {run.key: run for run in plan.every_run(scale)}


def height(run):
    """How many runs stand below a run, each on the next."""
    return max((1 + height(need) for need in Run(run).needs), default=0)


@functools.cache
def jobs(scale):
    """What is made in one process, by a hash: a run; at smoke, where to start takes as long as to run, up to 8 runs of
    a paper that stand equally high upon others, so that none of them needs another of them."""
    rows = {}
    for run in runs(scale).values():
        alike = package(Run(run).experiment), height(run)
        rows.setdefault(alike if scale == "smoke" else run.key, []).append(run)
    cut = [row[at:at + 8] for row in rows.values() for at in range(0, len(row), 8)]
    return {row[0].key if len(row) == 1 else sha256([run.key for run in row])[:16]: row for row in cut}


@functools.cache
def job_of(scale):
    """The hash of the job that each run is part of, by the run's."""
    return {run.key: name for name, row in jobs(scale).items() for run in row}


def asked():
    """The runs that `runs` is to make, of one experiment or of all."""
    return experiment(config["experiment"]).plan(SCALE) if "experiment" in config else runs(SCALE).values()


@functools.cache
def papers(chapter):
    """The packages of the papers that a chapter tells about."""
    notebook = json.loads(Path(f"notebooks/{chapter}.ipynb").read_text())
    return papers_of(chapter, "\n".join("".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"))


def recorded(run):
    return Store.for_scale(run.scale).get(run) is not None


def stamp(run):
    """The file that says that the job of a run is done."""
    return stamp_of(run.scale, job_of(run.scale)[run.key])


@functools.cache  # looked up once, before anything is made
def stamp_of(scale, name):
    """The stamp of a job. It goes when a record of the job goes."""
    path = Path(f"build/runs/{scale}/{jobs(scale)[name][0].experiment}/{name}")
    with caching():
        whole = not path.exists() or all(map(recorded, jobs(scale)[name]))
    if not whole:
        path.unlink()
    return str(path)


def planned(wildcards):
    return jobs(wildcards.scale)[wildcards.job]


def needed(wildcards):
    found = {}
    for run in planned(wildcards):
        if kept_model(run):
            continue  # its weights lie beside its record: nothing has to be read or made for it
        corpora = {run.corpus, *Run(run).experiment.reads(run)}
        found |= dict.fromkeys(f"build/corpora/{name}" for name in sorted(corpora))
        found |= dict.fromkeys(stamp(need) for need in Run(run).needs)
    return list(found)


@functools.cache
def estimates(scale, job):
    """The most bytes that a run of a job takes, and the seconds of all."""
    found = [Run(run).experiment.estimate(run) for run in jobs(scale)[job]]
    return max(one.memory_bytes for one in found), sum(one.seconds for one in found)


def command(wildcards):
    """The command line of a job; one process does all its runs."""
    lines = [Run(run).command + " --force" * (run.scale == "smoke") for run in planned(wildcards)]
    return lines[0] if len(lines) == 1 else shlex.join(["python", "-m", "repro.batch", *lines])


def shown(chapter):
    """The stamps of the smoke runs of the papers that a chapter tells about."""
    own = {"base", *papers(chapter)}
    return list(dict.fromkeys(stamp(run) for run in runs("smoke").values() if plan.packages_of(run) <= own))


def chapter_code(chapter):
    """A hash of the code behind a chapter: its papers', and the benchmarks' where it uses them."""
    return code(*papers(chapter)) + (digest("src/repro/bench") if benchmarked(chapter) else "")


def benchmarked(chapter):
    return "repro.bench" in Path(f"notebooks/{chapter}.ipynb").read_text()


def records(chapter):
    """A hash of the records that a chapter may show: those of its papers' experiments, and benchmarks' it uses."""
    own = {"base", *papers(chapter)}
    names = [one.name for one in experiments() if package(one) in own]
    folders = [path for path in Path("results").glob("*/*") if path.name in names]
    return digest(*folders, *(["results/bench"] if benchmarked(chapter) else []), "book/execute.py")


def gpus(wildcards):
    return int(wildcards.scale in ("medium", "paper"))


localrules: book, pdf, runs, notebooks, check


rule book:
    input:
        NOTEBOOKS,
    output:
        "build/html/index.html",
    log:
        "build/logs/book.log",
    params:
        pages=digest("book", "_config.yml", "results", "src/repro", "pyproject.toml"),  # it tells of all of them
    message:
        "book: {output}"
    shell:
        "python book/render.py build/html {input} > {log} 2>&1"


rule pdf:
    input:
        "build/html/index.html",
    output:
        "build/book.pdf",
    message:
        "pdf: {output}"
    shell:
        "python book/pdf.py build/html {output}"


# At smoke a chapter shows runs made here. At other scales it shows the records in results/, and no run of that scale is
# made; the live parts of some chapters make the few runs at smoke that they need.
rule chapter:
    input:
        lambda wildcards: shown(wildcards.name) if wildcards.scale == "smoke" else [],
    output:
        "build/chapters/{scale}/{name}.ipynb",
    params:
        cells=lambda wildcards: cells(wildcards.name),
        code=lambda wildcards: chapter_code(wildcards.name),
        records=lambda wildcards: records(wildcards.name),
        data="REPRO_DATA" in os.environ,
    message:
        "chapter: {wildcards.name} at {wildcards.scale}"
    shell:
        "python book/execute.py notebooks/{wildcards.name}.ipynb {output} {wildcards.scale}"


# Stores the outputs that the chapters have at smoke in notebooks/, and what they measure in CONTRIBUTING.md.
rule notebooks:
    input:
        expand("build/chapters/smoke/{name}.ipynb", name=CHAPTERS),
    message:
        "notebooks: outputs stored"
    shell:
        "cp {input} notebooks && python book/bar.py"


# Compares the outputs that the chapters have at smoke with those in notebooks/: where the book was made, nothing runs.
rule check:
    input:
        expand("build/chapters/smoke/{name}.ipynb", name=CHAPTERS),
    message:
        "check: stored outputs"
    shell:
        "python book/compare.py {input}"


# Makes the records of a scale that are missing; with `--config experiment=NAME` those of one experiment (at smoke a job
# has runs of other experiments of its paper too).
rule runs:
    input:
        lambda wildcards: list(dict.fromkeys(stamp(run) for run in asked() if not recorded(run))),
    message:
        "runs: every record of {SCALE} is there"


# One run, or at smoke several. At smoke they follow the code; a record of another scale is kept as long as it is there.
rule run:
    input:
        needed,
    output:
        touch("build/runs/{scale}/{experiment}/{job}"),
    log:
        "build/logs/{scale}/{experiment}/{job}.log",
    params:
        code=lambda wildcards: code(*plan.packages_of(planned(wildcards)[0])) if wildcards.scale == "smoke" else "",
        commands=lambda wildcards: " && ".join(Run(run).command for run in planned(wildcards)),
        command=command,
    threads: lambda wildcards: 8 if gpus(wildcards) else 1
    resources:
        gpus=gpus,
        gpu=gpus,  # what the Slurm plugin calls them
        mem_mb=lambda wildcards: int(4000 + 2 * estimates(wildcards.scale, wildcards.job)[0] / 10**6),
        runtime=lambda wildcards: int(30 + 2 * estimates(wildcards.scale, wildcards.job)[1] / 60),  # minutes
    message:
        "run: {params.commands} (gpus {resources.gpus}, MB {resources.mem_mb}, minutes {resources.runtime})"
    shell:
        "{params.command} > {log} 2>&1"


rule corpus:
    output:
        touch("build/corpora/{name}"),
    message:
        "corpus: {wildcards.name}"
    shell:
        """
        repro data check {wildcards.name} 2> /dev/null && exit
        repro data fetch {wildcards.name}
        repro data check {wildcards.name}
        """

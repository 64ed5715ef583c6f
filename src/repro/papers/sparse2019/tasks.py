"""The Sparse Transformer's Tables 1 to 4: experiments and tables (Child et al. 2019, section 7)."""

from repro.papers.sparse2019 import tables
from repro.papers.sparse2019.baselines import EXPERIMENT as BASELINES
from repro.papers.sparse2019.density import Config, estimate, execute
from repro.papers.sparse2019.settings import (
    IMAGE,
    SOUND,
    density_grid,
    sound_grid,
)
from repro.study import ADDED, Artifact, Experiment, Rereading, register

PAPER, CHAPTER = "sparse2019", "15_images_text_audio"
DENSITY = Experiment(
    name="sparse-density", paper=PAPER, summary="Patterns on images and text, in bits per byte.", config=Config,
    scales={scale: {"corpus": values["corpus"]} for scale, values in IMAGE.items()}, grid=density_grid,
    execute=execute, estimate=estimate,
    rereading=Rereading(lambda configs, name: [{"corpus": name} for _ in configs],
                        lambda config: config.length * max(config.held_out, config.scored or 1) + 1, trains=True))
AUDIO = Experiment(
    name="sparse-audio", paper=PAPER, summary="Longer sound with smaller models, in bits per byte.", config=Config,
    scales=SOUND, grid=sound_grid, execute=execute, estimate=estimate)
register(
    DENSITY, AUDIO, BASELINES,
    Artifact(id="sparse2019-table1", paper=PAPER, chapter=CHAPTER, source="Table 1", build=tables.density,
             experiment=(DENSITY.name, AUDIO.name, BASELINES.name),
             title="Density modeling: bits per byte of networks, and of baselines without one"),
    Artifact(id="sparse2019-table2", paper=PAPER, chapter=CHAPTER, experiment=(DENSITY.name, BASELINES.name),
             source="Table 2", title="Bits per byte and cost of each pattern", build=tables.patterns),
    Artifact(id="sparse2019-table3", paper=PAPER, chapter=CHAPTER, experiment=DENSITY.name, source="Table 3",
             title="Bits per byte for each minimum context", build=tables.contexts),
    Artifact(id="sparse2019-table4", paper=PAPER, chapter=CHAPTER, experiment=AUDIO.name, source="Table 4",
             title="Longer sound with smaller models", build=tables.audio),
    Artifact(id="sparse2019-variants", paper=PAPER, chapter=CHAPTER, experiment=DENSITY.name, source=ADDED,
             title="Ways to share heads, and images without position embeddings", build=tables.variants))

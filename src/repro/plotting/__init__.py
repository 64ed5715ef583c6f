"""Figures of the study, all in one style. Each function returns a figure, which a notebook shows exactly once.

>>> COLOURS["baseline"], COLOURS["recurrent"]
('#0072B2', '#D55E00')
"""

from repro.plotting.attention import draw_cost_and_quality, draw_growth, draw_patterns
from repro.plotting.compressed import draw_memory_compressed
from repro.plotting.curves import (
    draw_bars,
    draw_cost_front,
    draw_curves,
    draw_gains,
    draw_layer_weights,
    draw_memory,
    draw_quality_and_cost,
    draw_table_curves,
)
from repro.plotting.diagrams import draw_inputs, draw_insertion, draw_recurrence, draw_windows
from repro.plotting.effects import draw_effects
from repro.plotting.explorer import Explorer
from repro.plotting.live import LiveCurve
from repro.plotting.memories import draw_memories
from repro.plotting.mentions import draw_clusters
from repro.plotting.pictures import draw_connectivity, draw_images, draw_spectrograms, draw_weights
from repro.plotting.pixels import draw_pixels
from repro.plotting.planner import Planner
from repro.plotting.playground import Playground
from repro.plotting.prompts import draw_prompts
from repro.plotting.propagation import draw_own_and_other, draw_reach
from repro.plotting.query import draw_query
from repro.plotting.reading import draw_reading
from repro.plotting.receptive import draw_receptive_fields
from repro.plotting.scales import draw_scales
from repro.plotting.style import COLOURS, Drawing, canvas, house
from repro.plotting.svg import as_svg
from repro.plotting.words import ColouredText, Page, Word, draw_changes, draw_words

__all__ = ["COLOURS", "ColouredText", "Drawing", "Explorer", "LiveCurve", "Page", "Planner", "Playground", "Word",
           "as_svg", "canvas", "draw_bars", "draw_changes", "draw_clusters", "draw_connectivity",
           "draw_cost_and_quality", "draw_cost_front", "draw_curves", "draw_effects", "draw_gains", "draw_growth",
           "draw_images", "draw_inputs", "draw_insertion", "draw_layer_weights", "draw_memories", "draw_memory",
           "draw_memory_compressed", "draw_own_and_other", "draw_patterns", "draw_pixels", "draw_prompts",
           "draw_quality_and_cost", "draw_query", "draw_reach", "draw_reading", "draw_receptive_fields",
           "draw_recurrence", "draw_scales", "draw_spectrograms", "draw_table_curves", "draw_weights", "draw_windows",
           "draw_words", "house"]

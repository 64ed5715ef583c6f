"""The claims on adding recurrence, in the order in which lists and the scoreboard show them."""

from repro.papers.yoshida2020.claims import (
    gemma,
    hotpotqa,
    matched,
    memories,
    peak_memory,
    pg19,
    propagation,
    variations,
    wikitext103,
)
from repro.study import register

register(
    *pg19.CLAIMS,
    *propagation.CLAIMS,
    *memories.CLAIMS,
    *variations.CLAIMS,
    *wikitext103.CLAIMS,
    *gemma.CLAIMS,
    *hotpotqa.CLAIMS,
    *matched.CLAIMS,
    *peak_memory.CLAIMS,
)

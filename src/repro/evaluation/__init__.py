"""How long-context language models are scored: overlapped windows, perplexity, cost per token, intervals."""

from repro.evaluation.bootstrap import Interval, bootstrap
from repro.evaluation.documents import score_documents
from repro.evaluation.flops import flops_per_token
from repro.evaluation.perplexity import Score, perplexity
from repro.windows import Window, windows

__all__ = ["Interval", "Score", "Window", "bootstrap", "flops_per_token", "perplexity", "score_documents", "windows"]

"""How long-context language models are scored: overlapped windows, perplexity, cost per token, intervals."""

from repro.evaluation.bootstrap import Interval, bootstrap
from repro.evaluation.flops import flops_per_token
from repro.evaluation.pareto import pareto_front
from repro.windows import Window, windows

__all__ = ["Interval", "Score", "Window", "bootstrap", "flops_per_token", "pareto_front", "perplexity",
           "score_documents", "score_other_document", "windows"]


def __getattr__(name: str):  # what needs torch is imported when it is used: tables and claims do without
    if name in ("Score", "perplexity"):
        from repro.evaluation import scoring
        return getattr(scoring, name)
    if name == "score_documents":
        from repro.evaluation.documents import score_documents
        return score_documents
    if name == "score_other_document":
        from repro.evaluation.controls import score_other_document
        return score_other_document
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

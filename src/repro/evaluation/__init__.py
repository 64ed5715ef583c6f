"""Scoring long-context language models: overlapping windows, perplexity, cost per token, confidence intervals."""

from repro.evaluation.answers import answer_scores, normalise_answer
from repro.evaluation.bootstrap import Interval, bootstrap
from repro.evaluation.coreference import coreference_scores
from repro.evaluation.flops import flops_per_token
from repro.evaluation.hops import hotpotqa_scores, two_paragraph_evidence
from repro.evaluation.pareto import pareto_front
from repro.windows import Window, windows

__all__ = ["Interval", "Score", "Window", "answer_scores", "bootstrap", "continuation_nll",
           "coreference_scores", "flops_per_token", "hotpotqa_scores", "lambada", "normalise_answer", "pareto_front",
           "perplexity", "score_documents", "score_other_document", "two_paragraph_evidence", "windows"]


def __getattr__(name: str):  # names that need torch are imported on first use: tables and claims work without
    if name in ("Score", "perplexity"):
        from repro.evaluation import scoring
        return getattr(scoring, name)
    if name in ("continuation_nll", "lambada"):
        from repro.evaluation import zero_shot
        return getattr(zero_shot, name)
    if name == "score_documents":
        from repro.evaluation.documents import score_documents
        return score_documents
    if name == "score_other_document":
        from repro.evaluation.controls import score_other_document
        return score_other_document
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

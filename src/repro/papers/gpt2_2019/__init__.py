"""Radford, Wu, Child, Luan, Amodei and Sutskever (2019), *Language Models are Unsupervised Multitask Learners*."""

from repro.pages import metric
from repro.papers.gpt2_2019.prompts import PROMPTS
from repro.study.paper import Finding, Paper
from repro.study.published import printed_rows
from repro.study.registry import register

__all__ = ["PROMPTS"]


def values() -> dict[str, float]:
    """The largest model at `small`: its perplexities `wikitext103` and `lambada`, and `lambada_accuracy` in %."""
    names = {"wikitext103": "wikitext103_word_perplexity", "lambada": "lambada_perplexity",
             "lambada_accuracy": "lambada_accuracy_stop_words_percent"}
    return {name: metric("zero-shot-gpt2", one, size="1542M", text="all").value for name, one in names.items()}


register(Paper(
    id="gpt2_2019", name="GPT-2", cite="radford2019gpt2",
    idea="pretrain a larger decoder on the web and use it without fine-tuning",
    part="Decoder-only models", chapters=(12, 12),
    weights=lambda: max(float(row["parameters_millions_as_printed"])
                        for row in printed_rows("gpt2_2019_table2_model_sizes") if row["model"]),
    says="A language model solves tasks zero-shot, without being trained for them, and does so better the larger it "
         "is.",
    values=values,
    finding=Finding(
        "The largest of our four models has a {0.size:.0%} lower perplexity on WikiText-103 than the smallest (paper: "
        "{0.paper_size:.0%}), without having trained on it. All four are too small to answer questions.",
        {"gpt2_2019-larger-wikitext103": "reproduced", "gpt2_2019-larger-questions": "not testable here"})))

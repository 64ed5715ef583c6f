"""Radford, Narasimhan, Salimans and Sutskever (2018), *Improving Language Understanding by Generative Pre-Training*."""

from repro.papers.gpt1_2018.finetuning import FORMS, GENERATED, encoded, transfer
from repro.study import artifact
from repro.study.paper import Finding, Paper
from repro.study.registry import register

__all__ = ["FORMS", "GENERATED", "encoded", "transfer"]


def values() -> dict[str, float]:
    """`below_tf_idf`: by how many points the whole recipe scores below tf-idf at `small`."""
    table = artifact("gpt1_2018-table5-means").render("small", also=()).table.set_index("part")
    return {"below_tf_idf": -float(table.loc["whole recipe, not tf-idf", "six tasks"].split()[0])}


register(Paper(
    id="gpt1_2018", name="GPT", cite="radford2018gpt1",
    idea="pretrain a decoder on books, then fine-tune it for each task",
    part="Decoder-only models", chapters=(11, 11),
    says="Pre-training on books helps every task that the model is then fine-tuned for, and a transformer gains more "
         "from it than an LSTM.",
    values=values,
    finding=Finding(
        "Pre-training raises scores by {0.size:.1f} points on average (paper: {0.paper_size:.1f}). The whole recipe "
        "still scores {below_tf_idf:.1f} points below a linear model on word counts (tf-idf). The transformer's lead "
        "over an LSTM is {1.effect:+.1f} points, which could be chance (paper: {1.paper:+.1f}).",
        {"gpt1_2018-pretraining-helps": "reproduced", "gpt1_2018-lstm-worse": "not reproduced"})))

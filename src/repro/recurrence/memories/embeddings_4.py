"""The module of Yoshida, Ettinger and Gimpel (2020) with four vectors that every layer sees."""

from repro.recurrence.memories.yoshida import Yoshida


class FourEmbeddings(Yoshida):
    """`Yoshida` whose feedforward network turns z into four vectors, which all layers see."""

    defaults = {"insert": "every", "n_embeddings": 4}

"""The module of Yoshida, Ettinger and Gimpel (2020) at the first layer."""

from repro.recurrence.memories.yoshida import Yoshida


class YoshidaFirst(Yoshida):
    """`Yoshida` whose h_prev enters layer 0: with six layers, the relative depth of the paper's second of twelve."""

    defaults = {"insert_layer": 0}

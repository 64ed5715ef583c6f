"""What chapters show of the library's code."""

import ast

import numpy as np
import pytest

from repro.book import folded, listed, require, source, within, without_docstrings
from repro.errors import ReproError
from repro.recurrence import Recurrence, RecurrenceConfig

CODE = '''
def one(x):
    """Short."""
    return """kept: it is a value"""


class Two:
    """Long.

    And wide.
    """

    three = 3

    def four(self):
        # why
        """Inside."""
        return 4

    def five(self):
        """All there is of it."""
'''
SHOWN = '''
def one(x):
    return """kept: it is a value"""


class Two:
    three = 3

    def four(self):
        # why
        return 4

    def five(self):
        """All there is of it."""
'''


def test_docstrings_are_left_out_and_nothing_else():
    assert without_docstrings(CODE) == SHOWN.rstrip("\n")


@pytest.mark.parametrize("one", [Recurrence, Recurrence.pool, RecurrenceConfig, Recurrence.layer_weights])
def test_the_code_shown_is_the_code_that_runs(one):
    shown = source(one).data.removeprefix("```python\n").removesuffix("\n```")
    whole = source(one, docstring=True).data.removeprefix("```python\n").removesuffix("\n```")
    assert '"""' in whole and '"""' not in shown
    kept = ast.parse(whole)
    for node in ast.walk(kept):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node):
            del node.body[0]
    assert ast.dump(ast.parse(shown)) == ast.dump(kept)


def test_several_are_shown_one_after_the_other():
    shown = source(Recurrence.pool, Recurrence.combine).data
    assert shown.count("```python\n") == 2
    assert shown.index("def pool") < shown.index("def combine")


@pytest.mark.parametrize("given, expected", [
    (10, [10]), ("0,10", [0, 10]), ("[0, 10]", [0, 10]), ("7", [7]), ("(1,)", [1]), ("[]", []),
    ((0, 3), [0, 3]), ([], []), (np.int64(3), [3])])
def test_a_parameter_is_a_list_however_papermill_hands_it_over(given, expected):
    assert listed(given) == expected


@pytest.mark.parametrize("given", ["ten", "1,,2", None, ["a"], 1.5, [1.5], True])
def test_what_holds_no_whole_numbers_is_named(given):
    with pytest.raises(ReproError, match="no list of whole numbers; give one such as 0,10"):
        listed(given)


@pytest.mark.parametrize(("parameters", "said"), [
    ({"n": (50, 8), "stride": (0, 2)}, "stride is 0; allowed: 2 or more, whole. Change it in the cell of the"),
    ({"side": (3, 4, 10)}, "side is 3; allowed: 4 to 10, whole."),
    ({"side": (11, 4, 10)}, "side is 11; allowed: 4 to 10, whole."),
    ({"side": (6.5, 4, 10)}, "side is 6.5; allowed: 4 to 10, whole."),
    ({"side": (True, 1)}, "side is True; allowed: 1 or mo"),
    ({"side": (None, 4)}, "side is None; allowed: 4 or more, whole."),
    ({"depths": ([], 1)}, r"depths is \[\]; allowed: 1 or"),
    ({"rate": (-0.1, 0.0)}, "rate is -0.1; allowed: 0.0 or more."),
    ({"rate": (float("inf"), 0.0)}, "rate is inf; allowed: 0.0 or more."),
    ({"rate": (float("nan"), 0.0)}, "rate is nan; allowed: 0.0 or more."),
    ({"tokens": ("90", 1, 2_000)}, "tokens is '90'; allowed: 1 to 2,000, whole."),
    ({"depths": ([1, 129], 1, 128)}, r"depths is \[1, 129\]; allowed: 1 to 128, whole."),
])
def test_a_parameter_out_of_its_limits_is_named(parameters, said):
    with pytest.raises(ReproError, match=said):
        within(**parameters)


def test_a_parameter_at_its_limits_is_taken():
    limits = {"side": (4, 10), "most": (4, 10), "depths": (1, 128), "rate": (0.0,)}
    at = {"side": 4, "most": 10, "depths": [1, 128], "rate": 0}
    beyond = {"side": 3, "most": 11, "depths": [0, 128], "rate": -0.1}
    assert within(**{name: (at[name], *ends) for name, ends in limits.items()}) is None
    for name, ends in limits.items():
        with pytest.raises(ReproError, match=f"^{name} is"):
            within(**{name: (beyond[name], *ends)})


@pytest.mark.parametrize(("value", "said"), [
    (7, "window is 7; allowed: 4 to 128, whole, a multiple of 2. Change it in the cell of the parameters."),
    ([8, 9], r"window is \[8, 9\]; allowed"), (2, "window is 2;"), (130, "window is 130;"), (None, "window is None;"),
    (float("nan"), "window is nan;"), ([], r"window is \[\];"),
])
def test_a_parameter_that_is_no_multiple_is_named(value, said):
    with pytest.raises(ReproError, match=said):
        within(multiple_of=2, window=(value, 4, 128))


def test_multiples_at_the_limits_are_taken():
    assert within(multiple_of=2, window=([4, 128], 4, 128)) is None


def test_a_rule_is_named_with_the_value_that_breaks_it():
    assert require("in rising order", sizes=([1, 2], True)) is None
    with pytest.raises(ReproError, match=r"sizes is \[2, 1\]; allowed: in rising order. Change it in the cell of the"):
        require("in rising order", sizes=([2, 1], False))


class Table:
    def __init__(self, text):
        self.text = text

    def _repr_html_(self):
        return f"<table>{self.text}</table>"

    def __repr__(self):
        return self.text


def test_a_drawing_is_folded_as_a_notebook_shows_it():
    from repro.plotting import draw_windows

    shown = folded("Windows", draw_windows(6, window=4, overlap=1))._repr_html_()
    assert shown.count("<svg") == 1 and "Windows of 4 tokens over a text of 6" in shown


def test_tables_are_folded_behind_their_title_in_their_order():
    one = folded("Rates < 1", Table("a"), Table("b"))
    assert one._repr_html_() == ('<details class="more"><summary><b>Rates &lt; 1</b></summary>'
                                 "<table>a</table><table>b</table></details>")
    assert repr(one) == "Rates < 1"


@pytest.mark.parametrize(("arguments", "told"), [
    (("", Table("a")), "title is ''"), ((None, Table("a")), "title is None"), (("Rates",), "folds nothing"),
    (("Rates", 3), "cannot fold int"),
])
def test_folding_nothing_or_the_unseen_is_refused(arguments, told):
    with pytest.raises(ReproError, match=told):
        folded(*arguments)

"""The bibliography calls works what the text calls them: Yoshida et al., 2020."""

from collections import Counter

from pybtex.plugin import register_plugin
from pybtex.style.formatting.unsrt import Style as Unsorted
from pybtex.style.labels import BaseLabelStyle


class Labels(BaseLabelStyle):
    def format_labels(self, entries):
        labels = [label(entry) for entry in entries]
        all_of, seen = Counter(labels), Counter()
        for one in labels:
            yield one + "abcdefgh"[seen[one]] * (all_of[one] > 1)  # 2018a and 2018b: each label names one work
            seen[one] += 1


def label(entry):
    names = [" ".join(map(str, person.rich_last_names)) for person in entry.persons["author"]]
    return f"{' and '.join(names) if len(names) < 3 else f'{names[0]} et al.'}, {entry.fields['year']}"


class Style(Unsorted):
    default_label_style = Labels
    default_sorting_style = "author_year_title"


def setup(app):
    register_plugin("pybtex.style.formatting", "author_year", Style)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

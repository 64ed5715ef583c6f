"""One package per paper: its experiments, tables, figures and claims. `base` holds the models that all start from.

A paper is added as a package here, and no other code changes: the study finds it by its name, and the book presents it
as the `Paper` in its `__init__` says. Papers import `base` and the rooms below, never each other.
"""

"""Declarations: one module per experiment family, found by `repro.study.registry`."""

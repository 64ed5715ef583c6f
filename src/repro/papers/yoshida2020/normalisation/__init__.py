"""Typographic quotes and dashes: which texts use them, and what reading them as typed changes."""

"""Typographic quotes and dashes: which texts use them, and how much it matters to read them as plain ones."""

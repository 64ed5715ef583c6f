"""Longformer's tasks on long texts (Beltagy et al. 2020, section 6): each reads a text whole, in pieces, or cut."""

"""The gain from recurrence on each word of a page."""

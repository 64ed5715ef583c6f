"""Information that the recurrence module carries across a window boundary: section 5.3."""

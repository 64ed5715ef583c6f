"""What recurrence saves on each word of a page."""

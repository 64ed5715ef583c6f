"""Memories of other papers next to the recurrence module."""

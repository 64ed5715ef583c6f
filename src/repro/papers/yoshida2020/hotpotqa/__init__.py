"""Questions about ten paragraphs: section 5.4 and Table 3."""

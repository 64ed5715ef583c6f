"""Fine-tuned models and their word perplexity on articles and books: Tables 1 and 2, Figures 4 and 5."""

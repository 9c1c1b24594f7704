"""A cross-encoder's scores of pairs, kept on disk, for other models to learn from."""

"""A cross-encoder's scores of pairs, kept on the disk, for other models to learn from."""

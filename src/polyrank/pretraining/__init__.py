"""Corpora to pairs of texts that teach an encoder to rank. Knows texts only, no tokens."""

"""The demo: a corpus that every machine has, and three architectures trained on it."""

"""The demo: three architectures, trained on a corpus that every machine has."""

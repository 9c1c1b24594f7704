"""Models as sentence-transformers loads them."""

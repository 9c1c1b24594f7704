"""Lexical search: BM25 over the words of candidates."""

"""Retrieval: the candidate cache, the index and its search."""

"""Scoring: the poly-encoder's formula on tensors, shared by training and search."""

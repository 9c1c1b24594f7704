"""Evaluation: metrics, ranking of examples, latency and the table."""

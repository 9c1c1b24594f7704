"""The pre-training tasks: each a sequence of pairs of texts drawn from a corpus."""

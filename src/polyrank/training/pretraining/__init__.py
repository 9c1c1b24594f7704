"""Pre-training an encoder on pairs drawn from a corpus, with the same trainer as everything
else.
"""

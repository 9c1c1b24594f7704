"""Pre-training an encoder on pairs drawn from a corpus, by the same trainer as all else."""

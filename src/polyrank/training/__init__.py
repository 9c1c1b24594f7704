"""Training: losses, batches, the trainer."""

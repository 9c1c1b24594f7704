"""What the tests of the protocol share."""

TRAINING = {"max_steps": 2, "batch_size": 4}

"""The pre-training tasks, one in each module; `polyrank.pretraining.registry` finds them."""

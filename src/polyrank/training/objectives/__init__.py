"""What is minimised, one objective per module; `objectives.registry` finds them."""

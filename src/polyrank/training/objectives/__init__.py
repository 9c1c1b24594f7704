"""What is minimised: one objective per file, a registry of them, and the machinery they share."""

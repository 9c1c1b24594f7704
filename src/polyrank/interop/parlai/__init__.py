"""Rankers that ParlAI trained, read without ParlAI and without running any code of theirs."""

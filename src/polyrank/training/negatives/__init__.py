"""Wrong responses to train against: drawn at random, taken from the dialogue or found by search,
then filtered.
"""

"""Wrong responses to train against: drawn, from the dialogue, searched for, and filtered."""

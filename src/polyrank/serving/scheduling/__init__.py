"""What runs when: requests share the cores fairly, in batches of one token budget."""

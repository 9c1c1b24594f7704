"""Search over candidate vectors: exact, certified and approximate."""

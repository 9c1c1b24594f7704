"""Models that sentence-transformers and transformers saved, as settings and weights of ours."""

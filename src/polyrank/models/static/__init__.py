"""Static embeddings: a text is the average of its words' vectors."""

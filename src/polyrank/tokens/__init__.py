"""Tokens: from texts to padded batches of token ids."""

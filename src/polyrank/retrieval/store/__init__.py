"""The candidate store: shards of ids, texts and vectors in an index folder."""

"""From dumps, logs and documents to a corpus: a folder of Parquet files that tasks draw from."""

"""Data: files to records."""

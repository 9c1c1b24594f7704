"""Bulk encoding: a file of candidates, encoded in parts by many processes."""

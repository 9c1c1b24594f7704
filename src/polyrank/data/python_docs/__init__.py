"""The documentation of the installed Python, to documents, passages and examples."""

"""An index whose candidates are in Milvus: embedded in a file, or on a server."""

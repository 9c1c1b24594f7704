"""An index whose candidates lie in Milvus: embedded in a file, or on a server."""

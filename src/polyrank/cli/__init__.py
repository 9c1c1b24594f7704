"""The command line: one command a file, each a thin call into the layers below."""

"""The tables of the papers, each a declaration, run with the functions behind `polyrank train`."""

"""The papers' tables: each is a declaration, run with the functions behind `polyrank train`."""

"""The formats, one family in each module; `polyrank.data.loading` finds them."""

"""The poly-encoder paper's tables in small, on #ubuntu help chat."""

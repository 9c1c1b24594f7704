"""The routes, one client API per file. They know HTTP, and nothing of how a model computes."""

"""Models: backbone, pooling and the three architectures."""

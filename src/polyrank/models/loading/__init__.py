"""From a folder to a model: what it inherits, its settings, its encoders and its weights."""

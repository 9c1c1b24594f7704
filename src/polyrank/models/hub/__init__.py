"""Models from and to the Hugging Face hub."""

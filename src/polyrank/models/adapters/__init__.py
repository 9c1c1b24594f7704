"""LoRA: adapters on a model's encoders, in memory and as folders."""

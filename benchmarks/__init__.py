"""What is measured, against whom. Each module is a command: python -m benchmarks.NAME."""

"""Other projects' formats and protocols: models in and out, and benchmarks that run them."""

"""Speed of poptorch beside PyTorch: ``python -m benchmarks --help``."""

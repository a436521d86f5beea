"""Speed of poptorch compared with PyTorch: ``python -m benchmarks --help``."""

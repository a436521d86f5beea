"""Nested arguments, results and batches: flattening and rebuilding."""

"""Decompositions of ATen operations."""

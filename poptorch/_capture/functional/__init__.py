"""Rewriting a graph with in-place operations as a functional graph."""

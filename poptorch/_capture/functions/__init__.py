"""A torch-function mode: calls of torch's Python functions before they decompose."""

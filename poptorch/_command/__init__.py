"""The commands of ``python -m poptorch`` that take a model from a file."""

"""The code behind alias modules."""

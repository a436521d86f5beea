"""The executor's concerns, one a file."""

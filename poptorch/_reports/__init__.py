"""What is shown of a compilation and of a compiled program."""

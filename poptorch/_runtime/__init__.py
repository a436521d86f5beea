"""What a compiled model is, and how one is built, called and checked."""

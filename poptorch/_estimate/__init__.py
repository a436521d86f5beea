"""What a model would cost on an IPU system, without running it."""

"""Rules that translate ATen operations without a row of the same name."""

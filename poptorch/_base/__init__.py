"""What every part of the package uses; it does not know models."""

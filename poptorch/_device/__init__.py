"""The device that an executor holds."""

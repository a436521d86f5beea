"""Optimizers with a ``step()`` of their own: captured for the device, or run on the host."""

"""Optimizers on the device: the rows of their kinds, the update, and who has their state."""

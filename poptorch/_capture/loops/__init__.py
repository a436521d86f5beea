"""Loops and branches on the device."""

"""Data loading."""

from poptorch.data._loader import DataLoader as DataLoader

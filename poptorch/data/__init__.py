"""Data loading."""

from poptorch.data._accessor import AsynchronousDataAccessor as AsynchronousDataAccessor
from poptorch.data._loader import DataLoader as DataLoader

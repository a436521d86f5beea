"""Alias: wrapping and unwrapping a module in place."""

from poptorch._executor.instrument import rewrap as rewrapModelIfNecessary  # noqa: F401
from poptorch._executor.instrument import unwrap as unwrapModelIfNecessary  # noqa: F401

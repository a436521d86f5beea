"""Alias: wrapping and unwrapping a module in place."""

from poptorch._weights.instrument import rewrap as rewrapModelIfNecessary  # noqa: F401
from poptorch._weights.instrument import unwrap as unwrapModelIfNecessary  # noqa: F401

"""Alias: wrapping and unwrapping a module in place, and whether a model is captured."""

from poptorch._base.capture_context import is_capturing as isDispatchTracing  # noqa: F401
from poptorch._weights.instrument import rewrap as rewrapModelIfNecessary  # noqa: F401
from poptorch._weights.instrument import unwrap as unwrapModelIfNecessary  # noqa: F401

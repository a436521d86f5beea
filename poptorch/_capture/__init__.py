"""Step 1, capture: a module and example inputs become a functional FX graph.

Capture needs heavy parts of torch, so it is imported when it is first used.
"""

from poptorch._capture.context import is_capturing

__all__ = ["capture", "is_capturing"]


def capture(module, args=(), kwargs=None, **settings):
    """Captures a module; see :func:`poptorch._capture.capturing.capture`."""
    from poptorch._capture.capturing import capture as capture_now  # heavy parts of torch

    return capture_now(module, args, kwargs, **settings)

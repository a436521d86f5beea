"""Hooks of gradients, as forward or the user before it registers them."""

import functools
from collections.abc import Callable

from poptorch._base import capture_context


def of_capture(hook: Callable) -> Callable:
    """A hook as autograd is to call it while a program is captured.

    A function of the host may be one node of autograd, in eager there is one for each of its
    operations. So autograd would call the hook with None where eager has no path to it.
    """

    @functools.wraps(hook)
    def called(gradient):
        if gradient is None and capture_context.current().host_sites:
            return None
        return hook(gradient)

    return called

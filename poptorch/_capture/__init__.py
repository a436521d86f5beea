"""Step 1, capture: a module and example inputs become a functional FX graph. It needs heavy parts
of torch, and is imported when it is first used."""

from poptorch._base.capture_context import is_capturing

__all__ = ["capture", "capture_formula", "custom_call", "is_capturing", "refused_node",
           "torch_takes"]


def capture(module, args=(), kwargs=None, **settings):
    """Captures a module; see :func:`poptorch._capture.capturing.capture`."""
    from poptorch._capture.capturing import capture as capture_now  # heavy parts of torch

    return capture_now(module, args, kwargs, **settings)


def capture_formula(module, args):
    """Captures a function of poptorch's own, whatever modes of torch the caller has; see
    :func:`poptorch._capture.capturing.capture`."""
    from poptorch._base.torch_private.tracing import own_function_modes  # heavy parts of torch
    from poptorch._capture.capturing import capture as capture_now  # heavy parts of torch

    with own_function_modes():
        return capture_now(module, args, training=False, module_paths=False, is_substituted=False)


def custom_call(*arguments):
    """Calls an op of the user's library; see :mod:`poptorch._capture.library.custom`."""
    from poptorch._capture.library import custom as library_custom  # heavy parts of torch

    return library_custom.ops.custom_op(*arguments)


def refused_node(error, node):
    """What the user is to see of an exception in the translation of a node; see
    :func:`poptorch._capture.graph.node_errors.of_node`."""
    from poptorch._capture.graph.node_errors import of_node  # heavy parts of torch

    return of_node(error, node)


def torch_takes(node) -> bool:
    """Whether PyTorch is not known to refuse a recorded operation; see
    :func:`poptorch._capture.graph.node_errors.torch_takes`."""
    from poptorch._capture.graph.node_errors import torch_takes as takes_now  # heavy parts of torch

    return takes_now(node)

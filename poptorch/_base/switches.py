"""Switches for tests and debugging."""

import contextlib
from collections.abc import Iterator
from typing import Any

_wide = False


@contextlib.contextmanager
def wide() -> Iterator[None]:
    """Keeps 64-bit types: models compiled within run in float64 and int64 where PyTorch would.

    The same capture, IR, plan and schedule are used; only the narrowing at the program's edge is
    off. For proofs of correctness, not for speed.

    Example:
        >>> import poptorch, torch
        >>> from poptorch import testing
        >>> net = torch.nn.Linear(2, 2).double()
        >>> opts = poptorch.Options().showCompilationProgressBar(False)
        >>> with testing.wide():
        ...     y = poptorch.inferenceModel(net, opts)(torch.ones(1, 2, dtype=torch.float64))
        >>> y.dtype
        torch.float64
    """
    global _wide
    before, _wide = _wide, True
    try:
        yield
    finally:
        _wide = before


def is_wide() -> bool:
    """Whether :func:`wide` is on."""
    return _wide


_keep_gradients = False


@contextlib.contextmanager
def keep_gradients() -> Iterator[None]:
    """Training models compiled within return the gradients of the last weight update too.

    Read them with :func:`gradients`. They are the values that the optimizer saw: combined over
    micro-batches and replicas.

    Example:
        >>> import poptorch, torch
        >>> from poptorch import testing
        >>> class Net(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.w = torch.nn.Parameter(torch.ones(3))
        ...     def forward(self, x):
        ...         return poptorch.identity_loss((self.w * x).sum(), "none")
        >>> opts = poptorch.Options().showCompilationProgressBar(False)
        >>> with testing.keep_gradients():
        ...     model = poptorch.trainingModel(Net(), opts)
        ...     loss = model(torch.tensor([1., 2., 3.]))
        >>> testing.gradients(model)["w"]
        tensor([1., 2., 3.])
    """
    global _keep_gradients
    before, _keep_gradients = _keep_gradients, True
    try:
        yield
    finally:
        _keep_gradients = before


def keeps_gradients() -> bool:
    """Whether :func:`keep_gradients` is on."""
    return _keep_gradients


def gradients(executor: Any) -> dict[str, Any]:
    """Gradients of the last weight update of a model compiled under :func:`keep_gradients`.

    Args:
        executor: a training executor that has run.

    Returns:
        A tensor for each trained parameter that the loss depends on, by its dotted name.

    Raises:
        poptorch.Error: The model was not compiled under :func:`keep_gradients`, or has not run.
    """
    return executor._gradients()

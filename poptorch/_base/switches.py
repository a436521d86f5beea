"""Switches for tests and debugging."""

import contextlib
import math
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
    """Whether :func:`wide` is on.

    Example:
        >>> from poptorch import testing
        >>> with testing.wide():
        ...     testing.is_wide()
        True
    """
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
    """Whether :func:`keep_gradients` is on.

    Example:
        >>> from poptorch import testing
        >>> testing.keeps_gradients()
        False
    """
    return _keep_gradients


def gradients(executor: Any) -> dict[str, Any]:
    """Gradients of the last weight update of a model compiled under :func:`keep_gradients`.

    Args:
        executor: a training executor that has run.

    Returns:
        A tensor for each trained parameter that the loss depends on, by its dotted name.

    Raises:
        poptorch.Error: The model was not compiled under :func:`keep_gradients`, or has not run.

    Example:
        >>> import poptorch, torch
        >>> from poptorch import testing
        >>> opts = poptorch.Options().showCompilationProgressBar(False)
        >>> net = torch.nn.Linear(2, 1, bias=False)
        >>> with testing.keep_gradients():
        ...     model = poptorch.trainingModel(net, opts, loss=lambda output, target: output.sum())
        ...     result = model(torch.tensor([[1., 2.]]), torch.zeros(1, 1))
        >>> testing.gradients(model)
        {'weight': tensor([[1., 2.]])}
    """
    return executor._gradients()


_stage_costs: dict[int, float] | None = None


@contextlib.contextmanager
def stage_costs(costs: dict[int, float]) -> Iterator[None]:
    """Timelines asked for within have these costs in place of FLOPs: for exact tests.

    Each forward and each backward task of a stage costs the number of the stage, a task that is
    both costs it twice, and all else (copies, the host, the update) costs nothing.

    Args:
        costs: by the number of a stage, at least 0.

    Raises:
        TypeError: A stage is not an int, or a cost is not a number.
        ValueError: A cost is negative or not finite. ``timeline`` raises it too, where the program
            has a stage without a cost.

    Example:
        >>> import poptorch, torch
        >>> from poptorch import testing
        >>> opts = poptorch.Options().showCompilationProgressBar(False)
        >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
        >>> model.compile(torch.ones(3, 4))
        >>> with testing.stage_costs({0: 2.5}):
        ...     model.timeline().span
        2.5
    """
    global _stage_costs
    checked = {_stage(stage): _cost(cost) for stage, cost in costs.items()}
    before, _stage_costs = _stage_costs, checked
    try:
        yield
    finally:
        _stage_costs = before


def _stage(stage: Any) -> int:
    if isinstance(stage, bool) or not isinstance(stage, int):
        raise TypeError(f"[stage_costs] expected the number of a stage (int), got "
                        f"{type(stage).__name__} {stage!r}.")
    return stage


def _cost(cost: Any) -> float:
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        raise TypeError(f"[stage_costs] expected a number as the cost of a stage, got "
                        f"{type(cost).__name__} {cost!r}.")
    if not 0 <= cost < math.inf:
        raise ValueError(f"[stage_costs] expected a finite cost of at least 0, got {cost!r}.")
    return float(cost)


def current_stage_costs() -> dict[int, float] | None:
    """The costs of the innermost :func:`stage_costs`; None outside of it."""
    return _stage_costs

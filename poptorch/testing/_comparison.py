"""What a comparison with PyTorch found."""

from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class Difference:
    """A value that differs from PyTorch's by more than the rule allows.

    Attributes:
        name: of the value, as ``executor.getTensorNames()`` has it; or of a result, the loss or a
            gradient.
        step: number of the step.
        operation: the operation that made it; empty for what only the whole model shows.
        module: dotted path of the module.
        location: ``file:line`` of the user's program; empty where that is not known.
        error: norm of the difference over that of PyTorch's value in float64.
        limit: the largest error that is allowed.
        index: of the element that differs most.
        ours: that element here.
        expected: that element in PyTorch, in float64.
        cause: what the difference probably comes from.

    Example:
        >>> import poptorch
        >>> found = poptorch.testing.Difference(
        ...     name="x", step=0, operation="gelu", module="1", location="net.py:3", error=1e-3,
        ...     limit=1e-6, index=(0,), ours=1.001, expected=1.0, cause="")
        >>> found.error > found.limit
        True
    """

    name: str
    step: int
    operation: str
    module: str
    location: str
    error: float
    limit: float
    index: tuple[int, ...]
    ours: float
    expected: float
    cause: str

    @property
    def numbers(self) -> str:
        """The error and its limit."""
        return f"error {self.error:.2e}, limit {self.limit:.2e}"

    def __str__(self) -> str:
        operation = f" by {self.operation}" if self.operation else ""
        module = f', module "{self.module}"' if self.module else ""
        place = f"\n  at {self.location}{module}" if self.location else module
        return (f"{self.name}{operation} differs in step {self.step}: {self.numbers}; "
                f"element {list(self.index)} is {self.ours:.9g}, expected {self.expected:.9g}."
                f"{place}\n  likely cause: {self.cause}")


@dataclass(frozen=True)
class OtherForm:
    """A result or gradient that one side lacks, or that has another shape or type there."""

    name: str
    step: int
    ours: str
    expected: str
    cause: str

    @property
    def numbers(self) -> str:
        """What there is on both sides."""
        return f"{self.ours} here, {self.expected} in PyTorch"

    def __str__(self) -> str:
        return (f"{self.name} differs in step {self.step}: {self.numbers}.\n"
                f"  likely cause: {self.cause}")


@dataclass(frozen=True)
class Comparison:
    """What :func:`compare` found. It is true where nothing differs.

    Attributes:
        first: the first operation whose result differs; None: there is none.
        results: results, losses and gradients of the whole model that differ.
        compared: number of the values that were compared with PyTorch's, one by one.
        skipped: names of those that were not, by the reason.
        steps: how many steps were compared.

    Example:
        >>> import poptorch, torch
        >>> found = poptorch.testing.compare(torch.nn.ReLU().eval(), torch.randn(3))
        >>> bool(found), found.first, found.results, found.steps
        (True, None, (), 1)
    """

    first: Difference | None
    results: tuple[Difference | OtherForm, ...]
    compared: int
    skipped: dict[str, tuple[str, ...]] = field(default_factory=dict)
    steps: int = 1

    def __bool__(self) -> bool:
        return self.first is None and not self.results

    def __str__(self) -> str:
        steps = f"{self.steps} step{'' if self.steps == 1 else 's'}"
        values = f"{self.compared} value{'' if self.compared == 1 else 's'}"
        head = f"{values} of {steps} compared one by one: "
        if self:
            lines = [head + "the same numbers as PyTorch."]
        elif self.first is None:
            lines = [head + "none differs.", *map(str, self.results)]
        else:
            lines = [head + f"the first that differs is\n{self.first}"]
            lines += [f"So does {found.name}: {found.numbers}." for found in self.results]
        lines += [f"Not compared, {reason}: {_list(names)}."
                  for reason, names in self.skipped.items()]
        return "\n".join(lines)


def _list(names: tuple[str, ...]) -> str:
    most = 6
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def relative_error(ours: torch.Tensor, reference: torch.Tensor) -> float:
    """Norm of the difference over the norm of the reference; a tensor near zero is measured
    against 1e-3 times the root of its size. Equal infinities and NaNs are no error."""
    ours, reference = ours.detach().double(), reference.detach().double()
    if not reference.numel():
        return 0.0
    finite = torch.isfinite(reference)
    if not _are_same(ours, reference)[~finite].all():
        return float("inf")
    difference = torch.where(finite, ours - reference, 0.0)
    error = torch.linalg.vector_norm(difference).item()
    norm = torch.linalg.vector_norm(torch.where(finite, reference, 0.0)).item()
    return error / max(norm, 1e-3 * reference.numel() ** 0.5)


def _are_same(ours: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    return (ours == reference) | (ours.isnan() & reference.isnan())


def worst_element(ours: torch.Tensor, reference: torch.Tensor) -> tuple[int, ...]:
    """The index of the element that differs most."""
    difference = (ours.detach().double() - reference.detach().double()).abs()
    difference = torch.where(torch.isnan(difference), torch.inf, difference)
    same = _are_same(ours.detach().double(), reference.detach().double())
    number = torch.where(same, 0.0, difference).argmax()
    return tuple(map(int, torch.unravel_index(number, reference.shape)))

"""Convolutions that are computed together."""

from typing import Self

import torch

from poptorch._base import capture_context
from poptorch._base.checks import at_least
from poptorch.enums import MultiConvPlanType
from poptorch.ops.tensor_hints import check_share

_PARTIALS = {torch.float16: "half", torch.float32: "float"}


class MultiConv:
    """A context manager: the convolutions inside are one multi-convolution.

    Their results are those that they have alone; only :meth:`partialsTypes` changes them. In the
    IR each has the number of its multi-convolution, ``multi_conv``, and the settings, and so have
    the operations of its gradient. Outside of poptorch nothing happens.

    Raises:
        poptorch.Error: In a program: no convolution is inside, another MultiConv is around, or a
            setting does not have one value for each convolution.

    Example:
        >>> import poptorch, torch
        >>> conv = torch.nn.Conv2d(1, 2, 3)
        >>> with poptorch.MultiConv().cycleBackOff(0.1):
        ...     y = conv(torch.ones(1, 1, 4, 4))
    """

    def __init__(self) -> None:
        self._settings: dict[str, object] = {}
        self._entered: list = []

    def availableMemoryProportions(self, value: float | list[float]) -> "MultiConv":
        """The share of a tile's memory that each convolution may take for itself.

        Args:
            value: a number from 0 to 1, 1 excluded, for all; or a list or tuple of them, one for
                each convolution.

        Raises:
            TypeError: Not a number.
            ValueError: Out of range.

        Example:
            >>> import poptorch
            >>> multi = poptorch.MultiConv().availableMemoryProportions([0.2, 0.4])
        """
        where = "MultiConv.availableMemoryProportions"
        return self._set("available_memory", value, lambda share: _below_one(where, share))

    def cycleBackOff(self, value: float) -> "MultiConv":
        """How much longer than the fastest plan a plan may take that needs fewer tiles.

        Args:
            value: a number from 0 to 1.

        Raises:
            TypeError: Not a number.
            ValueError: Out of range.

        Example:
            >>> import poptorch
            >>> multi = poptorch.MultiConv().cycleBackOff(0.2)
        """
        check_share("MultiConv.cycleBackOff", "value", value, "a share of the fastest plan's time")
        self._settings["cycle_back_off"] = float(value)
        return self

    def enableConvDithering(self, value: bool | list[bool]) -> "MultiConv":
        """Whether convolutions begin on different tiles.

        Args:
            value: True or False for all; or a list or tuple, one for each convolution.

        Raises:
            TypeError: Not a bool.

        Example:
            >>> import poptorch
            >>> multi = poptorch.MultiConv().enableConvDithering(True)
        """
        return self._set("dithering", value, _dithering)

    def partialsTypes(self, value: torch.dtype | list[torch.dtype]) -> "MultiConv":
        """The type of the partial sums of convolutions of float16 and of their gradients, see
        ``options.Precision.setPartialsType``.

        Args:
            value: ``torch.float16`` or ``torch.float32`` for all; or a list or tuple, one for each
                convolution.

        Raises:
            ValueError: Another type.

        Example:
            >>> import poptorch, torch
            >>> multi = poptorch.MultiConv().partialsTypes([torch.float16, torch.float32])
        """
        return self._set("partials_type", value, _partials)

    def perConvReservedTiles(self, value: int) -> "MultiConv":
        """Tiles that are kept for each convolution, where they run at the same time.

        Args:
            value: at least 0.

        Raises:
            TypeError: Not an int.
            ValueError: Negative.

        Example:
            >>> import poptorch
            >>> multi = poptorch.MultiConv().perConvReservedTiles(128)
        """
        tiles = at_least(0, value, "MultiConv.perConvReservedTiles")
        self._settings["reserved_tiles"] = tiles
        return self

    def planType(self, value: MultiConvPlanType) -> "MultiConv":
        """Whether the convolutions run at the same time.

        Args:
            value: ``Parallel``, as without this call, or ``Serial``.

        Raises:
            AssertionError: No member of ``MultiConvPlanType``.

        Example:
            >>> import poptorch
            >>> multi = poptorch.MultiConv().planType(poptorch.MultiConvPlanType.Serial)
        """
        if not isinstance(value, MultiConvPlanType):
            raise AssertionError(f"[MultiConv.planType] Invalid plan type: expected a member of "
                                 f"MultiConvPlanType, got {value!r}. Pass "
                                 f"MultiConvPlanType.Parallel or MultiConvPlanType.Serial.")
        self._settings["plan_type"] = value.name.lower()
        return self

    def _set(self, kind: str, value, checked) -> "MultiConv":
        each = isinstance(value, (list, tuple))
        self._settings[kind] = tuple(map(checked, value)) if each else checked(value)
        return self

    def __enter__(self) -> Self:
        capture = capture_context.current()
        self._entered.append(None if capture is None else capture.multi_convs.begin())
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        begun, capture = self._entered.pop(), capture_context.current()
        if begun is not None and capture is not None:
            capture.multi_convs.end(begun, self._settings, kind is None)


def _below_one(where: str, share) -> float:
    check_share(where, "value", share)
    if share == 1:
        raise ValueError(f"[{where}] value is expected to be less than 1, got {share!r}.")
    return float(share)


def _dithering(value) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"[MultiConv.enableConvDithering] expected True or False, got "
                        f"{type(value).__name__} {value!r}.")
    return value


def _partials(dtype) -> str:
    if not isinstance(dtype, torch.dtype) or dtype not in _PARTIALS:
        raise ValueError(f"[MultiConv.partialsTypes] Invalid partials types: expected "
                         f"torch.float16 or torch.float32, got {dtype!r}.")
    return _PARTIALS[dtype]

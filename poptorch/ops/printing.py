"""Printing tensors in the order in which a program computes them."""

import torch

from poptorch._base.capture_context import is_capturing
from poptorch._capture.library import without_gradient  # noqa: F401  (declares the operation)
from poptorch._capture.library.evaluated import evaluated
from poptorch._capture.library.layers import ops
from poptorch.errors import Error

_FORMATS = ("auto", "fixed", "scientific")
_MOST_DIGITS = 32


def ipu_print_tensor(tensor: torch.Tensor, title: str = "", print_gradient: bool = True,
                     summarise_threshold: int = 1000, edge_items: int = 3,
                     max_line_width: int = 80, digits: int = 5, float_format: str = "auto",
                     separator: str = ",", open_bracket: str = "{",
                     close_bracket: str = "}") -> torch.Tensor:
    """Prints a tensor on stderr, each time that the program comes to it.

    For each micro-batch and replica that is once. Use the result in place of the tensor: a print
    whose result is not used is not part of the program. Outside of poptorch it prints too.

    A tensor of two dimensions is ``title: {``, a line for each row, and ``}``. One of a single
    dimension is one such line without brackets, a single number stands behind the title.

    Args:
        tensor: of any type.
        title: what stands before the values.
        print_gradient: whether the gradient of the tensor is printed in the backward pass, with
            the title ``<title>_gradient``.
        summarise_threshold: of a tensor of more elements, only the first and last entries of each
            dimension are printed.
        edge_items: how many of them at each end.
        max_line_width: characters of a line. Longer rows continue in the next line, indented; a
            value is never split.
        digits: significant digits of floating-point numbers, 1 to 32.
        float_format: ``"fixed"`` (0.012345), ``"scientific"`` (1.2345e-02), or ``"auto"``:
            scientific if a number that is printed has more digits before the point than
            ``digits``, or is less than 1e-4.
        separator: stands between values and between rows.
        open_bracket, close_bracket: around each dimension.

    Returns:
        A tensor of the same values and type.

    Raises:
        poptorch.Error: An argument is out of its range.

    Example:
        >>> import poptorch, torch
        >>> x = poptorch.ipu_print_tensor(torch.eye(2), "eye")  # on stderr
        >>> x
        tensor([[1., 0.],
                [0., 1.]])
    """
    format = {"summarise_threshold": summarise_threshold, "edge_items": edge_items,
              "max_line_width": max_line_width, "digits": digits, "float_format": float_format,
              "separator": separator, "open_bracket": open_bracket, "close_bracket": close_bracket}
    _check(format)
    title = str(title)
    after = f"{title}_gradient" if title else "gradient"
    return _Printed.apply(tensor, title, after if print_gradient else None, format)


def _check(format: dict) -> None:
    for name, low in (("summarise_threshold", 0), ("edge_items", 0), ("max_line_width", 1),
                      ("digits", 1)):
        value = format[name]
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise Error(f"[ipu_print_tensor] {name} is {value!r}. Use an int of at least {low}.")
    if format["digits"] > _MOST_DIGITS:
        raise Error(f"[ipu_print_tensor] digits is {format['digits']}. Use 1 to {_MOST_DIGITS}.")
    if format["float_format"] not in _FORMATS:
        raise Error(f"[ipu_print_tensor] float_format is {format['float_format']!r}. Use one of "
                    f"{', '.join(map(repr, _FORMATS))}.")
    for name in ("separator", "open_bracket", "close_bracket"):
        if not isinstance(format[name], str):
            raise Error(f"[ipu_print_tensor] {name} is {format[name]!r}. Use a str.")


class _Printed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, title, gradient_title, format):
        ctx.set_materialize_grads(False)
        ctx.title, ctx.format = gradient_title, format
        return _print(x, title, format)

    @staticmethod
    def backward(ctx, gradient):
        if ctx.title is not None and gradient is not None:
            gradient = _print(gradient, ctx.title, ctx.format)
        return gradient, None, None, None


def _print(x: torch.Tensor, title: str, format: dict) -> torch.Tensor:
    if is_capturing():
        return ops.print_tensor(x, title, *format.values())
    evaluated("print_tensor", [x], {"title": title, **format})
    return x.clone()

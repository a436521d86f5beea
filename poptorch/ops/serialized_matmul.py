"""Matrix products in several parts, one after the other."""

import torch

from poptorch._annotations.annotations import entered
from poptorch._base import capture_context
from poptorch._base.checks import one_of
from poptorch._capture.functions.mixed_precision import autocast
from poptorch.enums import MatMulSerializationMode

_Mode = MatMulSerializationMode
# What each mode splits: the index of its size (m, n, p of [m, n] @ [n, p]), the operand and its
# dimension.
_CUTS = {_Mode.InputChannels: (0, "lhs", -2), _Mode.ReducingDim: (1, "lhs", -1),
         _Mode.OutputChannels: (2, "rhs", -1)}


def serializedMatMul(lhs: torch.Tensor, rhs: torch.Tensor, mode: MatMulSerializationMode,
                     factor: int = 0, keep_precision: bool = False) -> torch.Tensor:
    """A matrix product that is computed in parts, one after the other.

    Its value is that of ``lhs @ rhs``; sums over ``n`` in parts round otherwise. The products of
    the gradient are computed in as many parts. Outside of poptorch it is ``torch.matmul``.

    Args:
        lhs: ``[..., m, n]``.
        rhs: ``[..., n, p]``, of the dtype of ``lhs``; leading dimensions broadcast.
        mode: the dimension that is cut: ``InputChannels`` m, ``ReducingDim`` n,
            ``OutputChannels`` p; ``Disabled``: none.
        factor: number of parts, a divisor of that dimension; 0, the default, and 1: a single one.
        keep_precision: whether parts are added in float32, for operands of float16 or bfloat16:
            those of the product with ``ReducingDim``, those of its gradient with the other modes.

    Returns:
        The product ``[..., m, p]``.

    Raises:
        TypeError: ``mode`` is no member of ``MatMulSerializationMode``, an operand no tensor, or
            ``factor`` no int.
        poptorch.Error: An operand has less than two dimensions, or ``factor`` is negative or does
            not divide the dimension.

    Example:
        >>> import poptorch, torch
        >>> mode = poptorch.MatMulSerializationMode.OutputChannels
        >>> poptorch.serializedMatMul(torch.ones(2, 3), torch.ones(3, 4), mode, factor=2).shape
        torch.Size([2, 4])
    """
    mode = one_of(_Mode, mode, "serializedMatMul")
    _check_operands(lhs, rhs, factor)
    if mode is _Mode.Disabled:
        return torch.matmul(lhs, rhs)
    number, operand, dim = _CUTS[mode]
    size = (lhs if operand == "lhs" else rhs).shape[dim]
    if factor < 0 or factor and size % factor:
        raise capture_context.error(
            f"[serializedMatMul] factor is {factor}, and {mode} cuts dimension {dim} of {operand}, "
            f"of size {size}, into that many equal parts. Choose a factor of {size}.")
    has_parts = lhs.numel() > 0 and rhs.numel() > 0 and lhs.shape[-1] == rhs.shape[-2]
    if factor <= 1 or not has_parts or not capture_context.is_capturing():
        return torch.matmul(lhs, rhs)
    return _in_parts(*autocast(lhs, rhs), number, factor, keep_precision)


def _check_operands(lhs, rhs, factor) -> None:
    for name, operand in (("lhs", lhs), ("rhs", rhs)):
        if not isinstance(operand, torch.Tensor):
            raise TypeError(f"[serializedMatMul] {name} is expected to be a tensor, got "
                            f"{type(operand).__name__} {operand!r}.")
        if operand.dim() < 2:
            raise capture_context.error(
                f"[serializedMatMul] {name} has the shape {list(operand.shape)}, but a matrix has "
                f"at least 2 dimensions. Call unsqueeze on it.")
    if isinstance(factor, bool) or not isinstance(factor, int):
        raise TypeError(f"[serializedMatMul] factor is expected to be an int, got "
                        f"{type(factor).__name__} {factor!r}.")


def _in_parts(lhs, rhs, number: int, factor: int, keep_precision: bool):
    """The product of matrices, or of one batch of them: further dimensions are joined."""
    batch = torch.broadcast_shapes(lhs.shape[:-2], rhs.shape[:-2])
    sizes = (*batch, lhs.shape[-2], rhs.shape[-1])
    if rhs.dim() == 2:  # all rows of all matrices are cut together
        lhs = lhs.reshape(lhs.shape[:-1].numel(), lhs.shape[-1])
    else:
        lhs, rhs = (x.expand(*batch, *x.shape[-2:]).reshape(batch.numel(), *x.shape[-2:])
                    for x in (lhs, rhs))
    with entered("serialization", (number, factor)):
        out = torch.ops.poptorch.serialized_matmul(lhs, rhs, number, factor, keep_precision)
    return out.reshape(sizes)


class SerializedLinear(torch.nn.Linear):
    """A linear layer whose product is computed in parts, by :func:`serializedMatMul`.

    Args:
        in_features: size of the last dimension of the input, the ``n`` of the product.
        out_features: size of the last dimension of the result, the ``p``.
        factor: number of parts, a divisor of the dimension that is cut.
        bias: whether there is one, False by default.
        mode: the dimension that is cut: p by default.
        keep_precision: as of :func:`serializedMatMul`.

    Example:
        >>> import poptorch, torch
        >>> layer = poptorch.SerializedLinear(8, 6, factor=3)
        >>> layer(torch.ones(2, 8)).shape
        torch.Size([2, 6])
    """

    def __init__(self, in_features: int, out_features: int, factor: int, bias: bool = False,
                 mode: MatMulSerializationMode = MatMulSerializationMode.OutputChannels,
                 keep_precision: bool = False):
        super().__init__(in_features, out_features, bias)
        self.mode = mode
        self.factor = factor
        self.keep_precision = keep_precision

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The product with the weight ``[out_features, in_features]``, with the bias added.

        Args:
            x: ``[..., m, in_features]``.

        Returns:
            ``[..., m, out_features]``.
        """
        weight, bias = self.weight, self.bias
        if capture_context.is_capturing() and x.is_floating_point() \
                and not torch.is_autocast_enabled("cpu"):  # as torch.nn.Linear there
            weight, bias = (w if w is None else w.to(x.dtype) for w in (weight, bias))
        out = serializedMatMul(x, weight.t(), self.mode, self.factor, self.keep_precision)
        return out if bias is None else out + bias

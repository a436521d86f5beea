"""What a decomposition gives is what the operation gives: tensors of its sizes, types, memory."""

import torch

from poptorch._base.layout import memory_of

aten = torch.ops.aten

# Their fake kernels promote the arguments; eager's result has the type of the first one.
_OF_FIRST_TYPE = frozenset({
    aten.binary_cross_entropy.default, aten.binary_cross_entropy_backward.default,
    aten.huber_loss.default, aten.soft_margin_loss.default})
# Results that nothing but the operation's own gradient reads.
OWN_BUFFERS = frozenset({(aten.log_sigmoid_forward.default, 1),
                         (aten._weight_norm_interface.default, 1)})


def mismatch(func, args, results: list, expected: list) -> str:
    """Where the results of a decomposition are not of the kind that ``func`` itself gives, which
    fake tensors ``expected`` show; "" if nowhere."""
    if len(results) != len(expected):
        return f"{len(results)} tensors, PyTorch gives {len(expected)}"
    for index, (ours, torchs) in enumerate(zip(results, expected, strict=True)):
        if ours is None or (func, index) in OWN_BUFFERS or _reduces_all(func, args):
            continue
        dtype = args[0].dtype if func in _OF_FIRST_TYPE else torchs.dtype
        if (ours.dtype, ours.shape) != (dtype, torchs.shape):
            return (f"{ours.dtype}{list(ours.shape)} as result {index}, PyTorch gives "
                    f"{dtype}{list(torchs.shape)}")
    return ""


def _reduces_all(func, args) -> bool:
    """Whether the operator reduces all dimensions, where PyTorch's rule of shapes reduces none."""
    return func is aten.nansum.default and len(args) > 1 and args[1] == []


def with_own_memory(results: list, arguments) -> list:
    """The results, copies of those that share memory with an argument."""
    taken = {memory_of(x) for x in arguments} - {None}
    return [aten.clone.default(x) if memory_of(x) in taken else x for x in results]


def fits(result: torch.Tensor, target: torch.Tensor) -> bool:
    """Whether a result can be copied to a tensor, which keeps its shape and type."""
    return result.shape == target.shape and torch.can_cast(result.dtype, target.dtype)

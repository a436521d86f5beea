"""The domain ``ai.onnx``: operations of the ONNX standard, as of its versions up to 12."""

import functools
import math

import torch
import torch.nn.functional as F

from poptorch.errors import Error
from poptorch.ops.named.registry import Row

_LAST = 12


def _folded(function):
    return lambda first, *others: functools.reduce(function, others, first)


def _mean(first, *others):
    return functools.reduce(torch.add, others, first) / (1 + len(others))


def _selu(x, *, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875):
    return gamma * torch.where(x > 0, x, alpha * torch.expm1(torch.clamp(x, max=0.0)))


def _clip_by_tensors(x, low=None, high=None):
    return torch.clone(x) if low is None and high is None else torch.clamp(x, low, high)


def _reduction(function):
    def reduce(x, *, axes: list[int] = (), keepdims=1):
        dims = list(axes) or list(range(x.dim()))
        return function(x, dims, keepdim=bool(keepdims)) if dims else function(x[None], [0])

    return reduce


def _product(x, dims, keepdim=False):
    for dim in sorted((d % x.dim() for d in dims), reverse=True):
        x = torch.prod(x, dim, keepdim=keepdim)
    return x


def _along_rest(function):
    """The function of all dimensions from an axis on, as if they were one."""
    def call(x, *, axis=1):
        axis %= max(x.dim(), 1)
        return function(x.flatten(axis), axis).reshape(x.shape)

    return call


def _pooled(function):
    return lambda x: function(x, list(range(2, x.dim())), keepdim=True)


def _gemm(a, b, c=None, *, alpha=1.0, beta=1.0, transA=0, transB=0):
    product = alpha * torch.matmul(a.t() if transA else a, b.t() if transB else b)
    return product if c is None else product + beta * c


def _flatten(x, *, axis=1):
    rows = math.prod(x.shape[:axis])
    return x.reshape(rows, x.numel() // max(rows, 1))


def _squeeze(x, *, axes: list[int] = ()):
    dims = list(axes) or [d for d, size in enumerate(x.shape) if size == 1]
    wrong = [d for d in dims if x.shape[d] != 1]
    if wrong:
        raise Error(f"[Squeeze] dimension {wrong[0]} of a tensor of sizes {list(x.shape)} has size "
                    f"{x.shape[wrong[0]]}; only dimensions of size 1 can be squeezed.")
    return torch.squeeze(x, dims)


def _unsqueeze(x, *, axes: list[int]):
    rank = x.dim() + len(axes)
    for axis in sorted(a % rank for a in axes):
        x = x.unsqueeze(axis)
    return x


def _gather(data, indices, *, axis=0):
    found = torch.index_select(data, axis, indices.reshape(-1))
    axis %= data.dim()
    return found.reshape(*data.shape[:axis], *indices.shape, *data.shape[axis + 1:])


def _slice(x, *, starts: list[int], ends: list[int], axes: list[int] = ()):
    for axis, start, end in zip(list(axes) or range(len(starts)), starts, ends, strict=True):
        x = x[(slice(None),) * (axis % x.dim()) + (slice(start, end),)]
    return x


def _concat(*inputs, axis: int):
    return torch.cat(inputs, axis)


def _split(x, *, split: list[int], axis=0):
    return torch.split(x, split, axis)


def _transpose(x, *, perm: list[int] = ()):
    return x.permute(list(perm) or list(reversed(range(x.dim()))))


# Functions of one and of two inputs without attributes, with the first version of this form.
_PLAIN = {
    "Abs": (6, torch.abs), "Acos": (7, torch.acos), "Acosh": (9, torch.acosh),
    "Asin": (7, torch.asin), "Asinh": (9, torch.asinh), "Atan": (7, torch.atan),
    "Atanh": (9, torch.atanh), "Ceil": (6, torch.ceil), "Cos": (7, torch.cos),
    "Cosh": (9, torch.cosh), "Erf": (9, torch.erf), "Exp": (6, torch.exp),
    "Floor": (6, torch.floor), "Identity": (1, torch.clone), "IsNaN": (9, torch.isnan),
    "Log": (6, torch.log), "Neg": (6, torch.neg), "Not": (1, torch.logical_not),
    "Reciprocal": (6, torch.reciprocal), "Relu": (6, torch.relu), "Round": (11, torch.round),
    "Sigmoid": (6, torch.sigmoid), "Sign": (9, torch.sign), "Sin": (7, torch.sin),
    "Sinh": (9, torch.sinh), "Softplus": (1, F.softplus), "Softsign": (1, F.softsign),
    "Sqrt": (6, torch.sqrt), "Tan": (7, torch.tan), "Tanh": (6, torch.tanh)}
_OF_TWO = {
    "Add": (7, torch.add), "And": (7, torch.logical_and), "Equal": (7, torch.eq),
    "Greater": (7, torch.gt), "Less": (7, torch.lt), "MatMul": (1, torch.matmul),
    "Mul": (7, torch.mul), "Or": (7, torch.logical_or), "Pow": (7, torch.pow),
    "Sub": (7, torch.sub), "Xor": (7, torch.logical_xor)}
_REDUCTIONS = {
    "ReduceL1": lambda x, *dims, **keep: torch.sum(torch.abs(x), *dims, **keep),
    "ReduceL2": lambda x, *dims, **keep: torch.sqrt(torch.sum(x * x, *dims, **keep)),
    "ReduceLogSum": lambda x, *dims, **keep: torch.log(torch.sum(x, *dims, **keep)),
    "ReduceLogSumExp": torch.logsumexp, "ReduceMax": torch.amax, "ReduceMean": torch.mean,
    "ReduceMin": torch.amin, "ReduceProd": _product, "ReduceSum": torch.sum,
    "ReduceSumSquare": lambda x, *dims, **keep: torch.sum(x * x, *dims, **keep)}
# Name, first version, last version, function.
_OTHERS = (
    ("ArgMax", 1, 11, lambda x, *, axis=0, keepdims=1: torch.argmax(x, axis, bool(keepdims))),
    ("ArgMin", 1, 11, lambda x, *, axis=0, keepdims=1: torch.argmin(x, axis, bool(keepdims))),
    ("Clip", 6, 10, lambda x, *, min=-math.inf, max=math.inf: torch.clamp(x, min, max)),
    ("Clip", 11, _LAST, _clip_by_tensors),
    ("Concat", 4, _LAST, _concat),
    ("Div", 7, _LAST, lambda a, b: torch.div(
        a, b, rounding_mode=None if a.is_floating_point() else "trunc")),
    ("Elu", 6, _LAST, lambda x, *, alpha=1.0: F.elu(x, alpha)),
    ("Flatten", 1, _LAST, _flatten),
    ("Gather", 1, _LAST, _gather),
    ("Gemm", 7, _LAST, _gemm),
    ("GlobalAveragePool", 1, _LAST, _pooled(torch.mean)),
    ("GlobalMaxPool", 1, _LAST, _pooled(torch.amax)),
    ("HardSigmoid", 6, _LAST,
     lambda x, *, alpha=0.2, beta=0.5: torch.clamp(alpha * x + beta, 0.0, 1.0)),
    ("LeakyRelu", 6, _LAST, lambda x, *, alpha=0.01: F.leaky_relu(x, alpha)),
    ("LogSoftmax", 1, _LAST, _along_rest(torch.log_softmax)),
    ("Max", 8, _LAST, _folded(torch.maximum)),
    ("Mean", 8, _LAST, _mean),
    ("Min", 8, _LAST, _folded(torch.minimum)),
    ("Mod", 10, _LAST, lambda a, b, *, fmod=0: (torch.fmod if fmod else torch.remainder)(a, b)),
    ("PRelu", 9, _LAST, lambda x, slope: torch.where(x < 0, x * slope, x)),
    ("Selu", 6, _LAST, _selu),
    ("Slice", 1, 9, _slice),
    ("Softmax", 1, _LAST, _along_rest(torch.softmax)),
    ("Split", 2, _LAST, _split),
    ("Squeeze", 1, _LAST, _squeeze),
    ("Sum", 8, _LAST, _folded(torch.add)),
    ("ThresholdedRelu", 10, _LAST,
     lambda x, *, alpha=1.0: torch.where(x > alpha, x, torch.zeros_like(x))),
    ("Transpose", 1, _LAST, _transpose),
    ("Unsqueeze", 1, _LAST, _unsqueeze),
    ("Where", 9, _LAST, lambda condition, a, b: torch.where(condition, a, b)),
)


def _rows(table: dict, signature) -> list[Row]:
    """Rows of functions that say nothing of their arguments: as ``signature`` of each does."""
    return [Row("ai.onnx", name, first, _LAST, signature(function))
            for name, (first, function) in table.items()]


ROWS = [
    *_rows(_PLAIN, lambda function: lambda x: function(x)),
    *_rows(_OF_TWO, lambda function: lambda a, b: function(a, b)),
    *(Row("ai.onnx", name, 1, _LAST, _reduction(f)) for name, f in _REDUCTIONS.items()),
    *(Row("ai.onnx", *row) for row in _OTHERS)]

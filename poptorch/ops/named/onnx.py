"""The domain ``ai.onnx``: operations of the ONNX standard, as of its versions up to 12."""

import functools
import math

import torch
import torch.nn.functional as F

from poptorch.errors import Error
from poptorch.ops.named.registry import Row

_LAST = 12

ROWS: list[Row] = []


def _onnx(name: str, first: int, last: int = _LAST):
    def register(function):
        ROWS.append(Row("ai.onnx", name, first, last, function))
        return function
    return register


# -- element by element --------------------------------------------------------------------------

_UNARY = {
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

_BINARY = {
    "Add": (7, torch.add), "And": (7, torch.logical_and), "Equal": (7, torch.eq),
    "Greater": (7, torch.gt), "Less": (7, torch.lt), "MatMul": (1, torch.matmul),
    "Mul": (7, torch.mul), "Or": (7, torch.logical_or), "Pow": (7, torch.pow),
    "Sub": (7, torch.sub), "Xor": (7, torch.logical_xor)}


def _unary(function):
    return lambda x: function(x)


def _binary(function):
    return lambda a, b: function(a, b)


for _name, (_first, _function) in _UNARY.items():
    _onnx(_name, _first)(_unary(_function))
for _name, (_first, _function) in _BINARY.items():
    _onnx(_name, _first)(_binary(_function))


@_onnx("Div", 7)
def _div(a, b):
    return torch.div(a, b) if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


@_onnx("Mod", 10)
def _mod(a, b, *, fmod: int = 0):
    return torch.fmod(a, b) if fmod else torch.remainder(a, b)


@_onnx("Where", 9)
def _where(condition, a, b):
    return torch.where(condition, a, b)


@_onnx("LeakyRelu", 6)
def _leaky_relu(x, *, alpha: float = 0.01):
    return F.leaky_relu(x, alpha)


@_onnx("PRelu", 9)
def _prelu(x, slope):
    return torch.where(x < 0, x * slope, x)


@_onnx("Elu", 6)
def _elu(x, *, alpha: float = 1.0):
    return F.elu(x, alpha)


@_onnx("Selu", 6)
def _selu(x, *, alpha: float = 1.67326319217681884765625,
          gamma: float = 1.05070102214813232421875):
    return gamma * torch.where(x > 0, x, alpha * torch.expm1(torch.clamp(x, max=0.0)))


@_onnx("ThresholdedRelu", 10)
def _thresholded_relu(x, *, alpha: float = 1.0):
    return torch.where(x > alpha, x, torch.zeros_like(x))


@_onnx("HardSigmoid", 6)
def _hard_sigmoid(x, *, alpha: float = 0.2, beta: float = 0.5):
    return torch.clamp(alpha * x + beta, 0.0, 1.0)


@_onnx("Clip", 6, 10)
def _clip(x, *, min: float = -math.inf, max: float = math.inf):
    return torch.clamp(x, min, max)


@_onnx("Clip", 11)
def _clip_by_tensors(x, low=None, high=None):
    if low is None and high is None:
        return torch.clone(x)
    return torch.clamp(x, low, high)


@_onnx("Max", 8)
def _max(first, *others):
    return functools.reduce(torch.maximum, others, first)


@_onnx("Min", 8)
def _min(first, *others):
    return functools.reduce(torch.minimum, others, first)


@_onnx("Sum", 8)
def _sum(first, *others):
    return functools.reduce(torch.add, others, first)


@_onnx("Mean", 8)
def _mean(first, *others):
    return functools.reduce(torch.add, others, first) / (1 + len(others))


# -- reductions ----------------------------------------------------------------------------------


def _product(x, dims, keep):
    for dim in sorted((d % x.dim() for d in dims), reverse=True):
        x = torch.prod(x, dim, keepdim=keep)
    return x


_REDUCTIONS = {
    "ReduceL1": lambda x, dims, keep: torch.sum(torch.abs(x), dims, keepdim=keep),
    "ReduceL2": lambda x, dims, keep: torch.sqrt(torch.sum(x * x, dims, keepdim=keep)),
    "ReduceLogSum": lambda x, dims, keep: torch.log(torch.sum(x, dims, keepdim=keep)),
    "ReduceLogSumExp": lambda x, dims, keep: torch.logsumexp(x, dims, keepdim=keep),
    "ReduceMax": lambda x, dims, keep: torch.amax(x, dims, keepdim=keep),
    "ReduceMean": lambda x, dims, keep: torch.mean(x, dims, keepdim=keep),
    "ReduceMin": lambda x, dims, keep: torch.amin(x, dims, keepdim=keep),
    "ReduceProd": _product,
    "ReduceSum": lambda x, dims, keep: torch.sum(x, dims, keepdim=keep),
    "ReduceSumSquare": lambda x, dims, keep: torch.sum(x * x, dims, keepdim=keep)}


def _reduction(function):
    def reduce(x, *, axes: list[int] = (), keepdims: int = 1):
        dims = list(axes) or list(range(x.dim()))
        return function(x, dims, bool(keepdims)) if dims else function(x[None], [0], False)
    return reduce


for _name, _function in _REDUCTIONS.items():
    _onnx(_name, 1)(_reduction(_function))


@_onnx("ArgMax", 1, 11)
def _argmax(x, *, axis: int = 0, keepdims: int = 1):
    return torch.argmax(x, axis, keepdim=bool(keepdims))


@_onnx("ArgMin", 1, 11)
def _argmin(x, *, axis: int = 0, keepdims: int = 1):
    return torch.argmin(x, axis, keepdim=bool(keepdims))


@_onnx("Softmax", 1)
def _softmax(x, *, axis: int = 1):
    axis %= max(x.dim(), 1)
    return torch.softmax(x.flatten(axis), axis).reshape(x.shape)


@_onnx("LogSoftmax", 1)
def _log_softmax(x, *, axis: int = 1):
    axis %= max(x.dim(), 1)
    return torch.log_softmax(x.flatten(axis), axis).reshape(x.shape)


@_onnx("GlobalAveragePool", 1)
def _global_average_pool(x):
    return torch.mean(x, list(range(2, x.dim())), keepdim=True)


@_onnx("GlobalMaxPool", 1)
def _global_max_pool(x):
    return torch.amax(x, list(range(2, x.dim())), keepdim=True)


# -- products and shapes -------------------------------------------------------------------------


@_onnx("Gemm", 11)
def _gemm(a, b, c=None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0,
          transB: int = 0):
    product = alpha * torch.matmul(a.t() if transA else a, b.t() if transB else b)
    return product if c is None else product + beta * c


@_onnx("Gemm", 7, 10)
def _gemm_with_sum(a, b, c, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0,
                   transB: int = 0):
    return _gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)


@_onnx("Concat", 4)
def _concat(*inputs, axis: int):
    return torch.cat(inputs, axis)


@_onnx("Split", 2)
def _split(x, *, split: list[int], axis: int = 0):
    return torch.split(x, split, axis)


@_onnx("Transpose", 1)
def _transpose(x, *, perm: list[int] = ()):
    return x.permute(list(perm) or list(reversed(range(x.dim()))))


@_onnx("Flatten", 1)
def _flatten(x, *, axis: int = 1):
    rows = math.prod(x.shape[:axis])
    return x.reshape(rows, x.numel() // max(rows, 1))


@_onnx("Squeeze", 1)
def _squeeze(x, *, axes: list[int] = ()):
    dims = list(axes) or [d for d, size in enumerate(x.shape) if size == 1]
    wrong = [d for d in dims if x.shape[d] != 1]
    if wrong:
        raise Error(f"[Squeeze] dimension {wrong[0]} of a tensor of sizes {list(x.shape)} is not "
                    f"of size 1. Name others.")
    return torch.squeeze(x, dims)


@_onnx("Unsqueeze", 1)
def _unsqueeze(x, *, axes: list[int]):
    rank = x.dim() + len(axes)
    for axis in sorted(a % rank for a in axes):
        x = x.unsqueeze(axis)
    return x


@_onnx("Gather", 1)
def _gather(data, indices, *, axis: int = 0):
    found = torch.index_select(data, axis, indices.reshape(-1))
    axis %= data.dim()
    return found.reshape(*data.shape[:axis], *indices.shape, *data.shape[axis + 1:])


@_onnx("Slice", 1, 9)
def _slice(x, *, starts: list[int], ends: list[int], axes: list[int] = ()):
    for axis, start, end in zip(list(axes) or range(len(starts)), starts, ends, strict=True):
        x = x[(slice(None),) * (axis % x.dim()) + (slice(start, end),)]
    return x

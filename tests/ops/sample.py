"""Samples of op rows, and how a row is computed from one.

A file ``samples/<family>.py`` holds lists of them, ``SAMPLES`` and ``BADS``; ``test_ops.py`` runs
every check on every sample. To cover a row, add a line:

    Sample("gelu", lambda: [randn(5, 7)], {"approximate": "tanh"})

Without ``reference`` the row's ATen op is called, operands and attributes by their names.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch

from poptorch import _C

ROWS = {row["name"]: row for row in _C.op_table()}
TORCH = {"bool": torch.bool, "u8": torch.uint8, "i8": torch.int8, "i16": torch.int16,
         "i32": torch.int32, "i64": torch.int64, "f16": torch.float16, "bf16": torch.bfloat16,
         "f32": torch.float32, "f64": torch.float64}
NAMES = {dtype: name for name, dtype in TORCH.items()}
FLOATS = ("f32", "f64", "f16", "bf16")


@dataclass
class Sample:
    """One call of an op.

    Attributes:
        op: name of the row.
        inputs: makes the operands: float32, integer or bool tensors, None for an absent one. Called
            after seeding, so that each run has fresh data.
        attrs: attributes of the op; a ``torch.dtype`` stands for an IR dtype.
        reference: takes the operands (absent ones are None), gives a tensor or a tuple of tensors,
            None for a result that is not compared. Called in float32 and float64. Without one the
            row's ATen op is called.
        check: instead of a reference: takes operands and results, and asserts.
        dtypes: floating-point dtypes to run in; ``dtype:f32`` attributes follow.
        equal_bits: whether the number of threads leaves all bits as they are. Not so for what
            oneDNN computes: it cuts sums by threads.
        is_packed: whether ``inputs`` takes a number of threads, on which the form of packed
            operands depends.
        wide: positions of operands that are f32 where the others are 16-bit floats.
        rounded_within: 16-bit dtypes in which what the row multiplies is rounded, too, as PyTorch
            does it: an error is measured by the largest result.
        note: tells apart samples of one row in the names of tests.
    """

    op: str
    inputs: Callable[[], list]
    attrs: dict = field(default_factory=dict)
    reference: Callable | None = None
    check: Callable | None = None
    dtypes: tuple = FLOATS
    equal_bits: bool = True
    is_packed: bool = False
    wide: tuple = ()
    rounded_within: tuple = ()
    note: str = ""

    @property
    def id(self):
        """Name of the sample in test names."""
        attrs = "-".join(f"{k}={v}" for k, v in self.attrs.items())
        return "-".join(part for part in (self.op, attrs, self.note) if part)

    def operands(self, dtype="f32"):
        """Fresh operands, floating-point ones rounded to ``dtype``."""
        return self.rounded(self.inputs(), dtype)

    def rounded(self, operands, dtype):
        """These operands, floating-point ones rounded to ``dtype``."""
        is_half = dtype in ("f16", "bf16")
        return [as_dtype(x, "f32" if is_half and i in self.wide else dtype)
                for i, x in enumerate(operands)]


@dataclass
class Bad:
    """A call that must be refused: by the type rule or when it runs.

    Attributes:
        op: name of the row.
        inputs: makes the operands.
        attrs: attributes of the op.
        words: what the message must hold.
    """

    op: str
    inputs: Callable[[], list]
    attrs: dict = field(default_factory=dict)
    words: str = ""

    @property
    def id(self):
        """Name of the case in test names."""
        return f"{self.op}-{self.words}"


def expected(sample, operands, dtype):
    """Results of PyTorch in a floating-point dtype from the values of the operands, as a tuple."""
    operands = [as_dtype(x, dtype) for x in operands]
    if sample.reference is not None:
        results = sample.reference(*operands)
    else:
        attrs = {name: TORCH[dtype] if value is torch.float32 else value
                 for name, value in sample.attrs.items()}
        results = call_aten(sample.op, operands, attrs)
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


def call_aten(op, operands, attrs):
    """Calls the row's first ATen op, operands and attributes by their names."""
    row = ROWS[op]
    assert row["aten"], f"row {op} has no ATen op: give its samples a reference"
    namespace, _, name = row["aten"][0].partition("::")
    name, _, overload = name.partition(".")
    function = getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")
    names = [operand.rstrip("?*") for operand in row["operands"]]
    given = {name: x for name, x in zip(names, operands) if name != "rng"}
    if op == "convolution_backward" and max(operands[2].shape[2:]) == 1:
        # Channels-last, torch 2.13 writes past the end of some gradients of strided ones. A copy
        # has the strides of rows also where other strides would say the same.
        given = {name: x if x is None else x.clone(memory_format=torch.contiguous_format)
                 for name, x in given.items()}
    return function(**given, **attrs)


def as_dtype(x, dtype):
    """``x`` in a floating-point dtype, if it is a floating-point tensor."""
    if isinstance(x, torch.Tensor) and x.is_floating_point():
        return x.to(TORCH[dtype])
    return x


def to_host(x):
    """A tensor as ``_C.evaluate`` takes it, strides and all."""
    if x is None:
        return None
    if x.dtype is torch.bfloat16:
        return x.view(torch.int16).numpy().view(np.uint16), "bf16"
    return x.numpy()


def from_host(array, dtype):
    """A result of ``_C.evaluate`` as a tensor of the IR dtype named."""
    if dtype == "bf16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def to_attrs(attrs, dtype="f32"):
    """Attributes as ``_C`` takes them; the dtype float32 becomes ``dtype``."""
    def convert(value):
        if value is torch.float32:
            return _C.DType(dtype)
        return _C.DType(NAMES[value]) if isinstance(value, torch.dtype) else value

    return {name: convert(value) for name, value in attrs.items()}


def infer(sample, operands, dtype="f32"):
    """Types ``(dtype, sizes)`` of the results, by the row's type rule."""
    types = [None if x is None else (NAMES[x.dtype], list(x.shape)) for x in operands]
    return _C.infer(sample.op, types, to_attrs(sample.attrs, dtype))


def evaluate(sample, operands, dtype="f32", **how):
    """Results of the row's kernel. ``how``: ``threads``, ``inplace``."""
    arrays = _C.evaluate(sample.op, [to_host(x) for x in operands],
                         to_attrs(sample.attrs, dtype), **how)
    types = infer(sample, operands, dtype)
    return [from_host(array, name) for array, (name, _) in zip(arrays, types, strict=True)]


def last_channels(x):
    """Images or weights with channels last, row-major."""
    return x.movedim(1, -1).contiguous() if x is not None and x.dim() > 2 else x


def first_channels(x):
    """The same with channels first."""
    return x.movedim(-1, 1) if x is not None and x.dim() > 2 else x


def channels_last(sample):
    """The sample in the other layout. Tensors of up to two dimensions have none."""
    def reference(*operands):
        results = expected(sample, [first_channels(x) for x in operands], NAMES[operands[0].dtype])
        return tuple(last_channels(x) for x in results)

    return Sample(sample.op, lambda: [last_channels(x) for x in sample.inputs()],
                  sample.attrs | {"layout": "channels_last"}, reference,
                  equal_bits=sample.equal_bits, note=sample.note)


def randn(*sizes):
    """Normal variates."""
    return torch.randn(sizes)


def uniform(low, high, *sizes):
    """Uniform variates in [low, high)."""
    return torch.rand(sizes) * (high - low) + low


def integers(low, high, *sizes, dtype=torch.int32):
    """Whole numbers in [low, high)."""
    return torch.randint(low, high, sizes).to(dtype)


def bools(*sizes):
    """True or false."""
    return torch.rand(sizes) < 0.5


def numbers(*values, dtype=torch.float32):
    """A tensor of these values."""
    return torch.tensor(values, dtype=dtype)


def scalar(value, dtype=torch.float32):
    """A 0-d tensor."""
    return torch.tensor(value, dtype=dtype)

"""Tensors without data of torch's fake mode: how to create and recognize them.

No other module names torch's class of them: torch is about to have them in C++, without a class.
"""

import contextlib
import os
import sys
import warnings
from functools import partial

import torch
from torch._subclasses.fake_impls import fast_detach
from torch._subclasses.fake_tensor import (
    DataDependentOutputException as DataDependentOutputException,
)
from torch._subclasses.fake_tensor import DynamicOutputShapeException as DynamicOutputShapeException
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager

from poptorch._base.pytree.structure import map_only

_CPU = torch.device("cpu")
_CACHE_FOLDER = "TORCHINDUCTOR_CACHE_DIR"


def is_fake(value) -> bool:
    """Whether a value is a tensor without data, of any fake mode."""
    return isinstance(value, FakeTensor)


def constant_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The value of a fake tensor, where torch knows it; None where it does not."""
    return tensor.constant


def device_of(tensor: torch.Tensor) -> torch.device:
    """The device that a fake tensor says it is on."""
    return tensor.fake_device


def shown_as_tensor(message: str) -> str:
    """A message of torch's with the class of ordinary tensors in place of that of fake ones."""
    return message.replace(FakeTensor.__name__, "Tensor")


def is_named_in(message: str) -> bool:
    """Whether a message of torch's names the class of fake tensors."""
    return FakeTensor.__name__ in message


def new_fake_mode() -> FakeTensorMode:
    """Tensors without data; real tensors may take part in operations."""
    with _without_traces_of_imports():
        return FakeTensorMode(allow_non_fake_inputs=True)


@contextlib.contextmanager
def _without_traces_of_imports():
    """The first fake mode imports torch._dynamo, which puts a folder into the environment, and
    sympy, which adds a filter of warnings. Both do without, and child processes inherit them."""
    is_first = "torch._dynamo" not in sys.modules
    has_folder, filters = _CACHE_FOLDER in os.environ, warnings.filters[:]
    try:
        yield
    finally:
        if is_first and not has_folder:
            os.environ.pop(_CACHE_FOLDER, None)
        if is_first:
            warnings.filters[:] = [f for f in warnings.filters if f in filters
                                   or not f[2].__module__.startswith("sympy.")]


def new_fake(mode: FakeTensorMode, shape, stride, dtype: torch.dtype) -> FakeTensor:
    """A tensor without data in memory of its own."""
    with in_kernel_invocation_manager(mode):
        out = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
    return _fake(mode, out)


def fake_like(mode: FakeTensorMode, tensor: torch.Tensor) -> FakeTensor:
    """A tensor without data, with the memory layout of ``tensor``."""
    shape, stride, offset = tensor.shape, tensor.stride(), tensor.storage_offset()
    size = tensor.untyped_storage().nbytes()
    with torch.no_grad(), in_kernel_invocation_manager(mode):
        out = torch.empty_strided(shape, stride, dtype=tensor.dtype, device="meta")
        if offset or size != out.untyped_storage().nbytes():
            memory = torch.empty(size, dtype=torch.uint8, device="meta")
            out.set_(memory.untyped_storage(), offset, shape, stride)
    return _fake(mode, out)


def by_meta_kernel(mode: FakeTensorMode, func, args, kwargs):
    """The result of an operation by its kernel for tensors without data; all tensors are fake and
    without known values."""
    with in_kernel_invocation_manager(mode):
        out = func(*args, **kwargs)
    return map_only(torch.Tensor, partial(_fake, mode), out)


def _fake(mode: FakeTensorMode, tensor: torch.Tensor) -> FakeTensor:
    return FakeTensor(mode, tensor, _CPU)


def detached(mode: FakeTensorMode, tensor: FakeTensor) -> FakeTensor:
    """``tensor.detach()`` without the dispatcher, which takes ten times as long."""
    out = fast_detach(mode, tensor)
    if tensor.constant is not None:  # what is written to either changes the value of both
        out.constant = tensor.constant
        mode.fake_tensor_converter.add_constant_storage_mapping(out)
    return out


def swap(tensor: FakeTensor, other: FakeTensor) -> None:
    """Lets each of two Python objects be the tensor that the other one was; autograd keeps those
    that it refers to."""
    tensor.__dict__, other.__dict__ = other.__dict__, tensor.__dict__
    torch._C._swap_tensor_impl(tensor, other)


def called_without_constants(func, args, kwargs):
    """The result of an operation without an implementation for real tensors. Torch would call it on
    the values of fake tensors of one element, where it has them."""
    known = []

    def forget(tensor: FakeTensor) -> FakeTensor:
        if tensor.constant is not None:
            known.append((tensor, tensor.constant))
            tensor.constant = None
        return tensor

    map_only(FakeTensor, forget, (args, kwargs))
    try:
        return func(*args, **kwargs)
    finally:
        for tensor, constant in known:
            tensor.constant = constant

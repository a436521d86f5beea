"""Memory of results: used again when a result is gone, never before."""

import gc

import pytest
import torch
from torch import nn

import poptorch
from poptorch import _C

LARGE = (512, 1024)  # 2 MiB of floats


@pytest.mark.parametrize("dtype, torch_dtype", [
    ("bool", torch.bool), ("u8", torch.uint8), ("i8", torch.int8), ("i16", torch.int16),
    ("i32", torch.int32), ("i64", torch.int64), ("f16", torch.float16), ("bf16", torch.bfloat16),
    ("f32", torch.float32), ("f64", torch.float64),
])
@pytest.mark.parametrize("sizes", [(), (0, 3), (2, 3), (1 << 20, 3)])
def test_tensors(dtype, torch_dtype, sizes):
    tensor = torch.from_dlpack(_C.HostPool().empty(dtype, sizes))
    assert tensor.dtype == torch_dtype and tensor.shape == sizes and tensor.is_contiguous()
    assert tensor.data_ptr() % 64 == 0
    assert torch.equal(tensor.fill_(1), torch.ones(sizes, dtype=torch_dtype))  # outlives its pool


def test_memory_is_recycled():
    pool = _C.HostPool()
    first = torch.from_dlpack(pool.empty("f32", LARGE))
    second = torch.from_dlpack(pool.empty("f32", LARGE))
    assert first.data_ptr() != second.data_ptr()
    view, address = first[3:], first.data_ptr()
    del first
    gc.collect()
    assert torch.from_dlpack(pool.empty("f32", LARGE)).data_ptr() != address
    del view
    gc.collect()
    addresses = {torch.from_dlpack(pool.empty("f32", LARGE)).data_ptr() for _ in range(3)}
    assert len(addresses) == 1


def test_a_capsule_that_nobody_takes_is_freed():
    pool = _C.HostPool()
    address = torch.from_dlpack(pool.empty("f32", LARGE)).data_ptr()
    pool.empty("f32", LARGE)
    assert torch.from_dlpack(pool.empty("f32", LARGE)).data_ptr() == address


def test_results_of_calls_stay():
    """A result that the user keeps does not change in later calls."""
    model = poptorch.inferenceModel(nn.Sequential(nn.ReLU()))
    inputs = [torch.randn(LARGE) for _ in range(4)]
    results = [model(x) for x in inputs]
    for x, result in zip(inputs, results):
        assert torch.equal(result, x.relu())
    addresses = {model(inputs[0]).data_ptr() for _ in range(4)}
    assert len(addresses) == 1 and not addresses & {r.data_ptr() for r in results}

"""Memory of results: used again when a result is gone, never before."""

import gc

import pytest
import torch
from torch import nn

import poptorch
from poptorch import _C

LARGE = (512, 1024)  # 2 MiB of floats


def large(pool):
    return _C.TensorKind(torch.float32, LARGE).empty(pool)


@pytest.mark.parametrize("dtype", [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
    torch.bfloat16, torch.float32, torch.float64, torch.complex64,
])
@pytest.mark.parametrize("sizes", [(), (0, 3), (2, 3), (1 << 20, 3)])
def test_tensors(dtype, sizes):
    tensor = _C.TensorKind(dtype, sizes).empty(_C.HostPool())
    assert tensor.dtype == dtype and tensor.shape == sizes and tensor.is_contiguous()
    assert tensor.data_ptr() % 64 == 0
    assert torch.equal(tensor.fill_(1), torch.ones(sizes, dtype=dtype))  # outlives its pool


def test_memory_is_recycled():
    pool = _C.HostPool()
    first, second = large(pool), large(pool)
    assert first.data_ptr() != second.data_ptr()
    view, address = first[3:], first.data_ptr()
    del first
    gc.collect()
    assert large(pool).data_ptr() != address
    del view
    gc.collect()
    assert len({large(pool).data_ptr() for _ in range(3)}) == 1


def test_a_tensor_can_be_resized():
    pool = _C.HostPool()
    tensor = large(pool)
    address = tensor.data_ptr()
    tensor.resize_(2 * LARGE[0], LARGE[1]).zero_()
    assert tensor.data_ptr() != address
    assert large(pool).data_ptr() == address


def test_results_of_calls_stay():
    """A result that the user keeps does not change in later calls."""
    model = poptorch.inferenceModel(nn.Sequential(nn.ReLU()))
    inputs = [torch.randn(LARGE) for _ in range(4)]
    results = [model(x) for x in inputs]
    for x, result in zip(inputs, results):
        assert torch.equal(result, x.relu())
    addresses = {model(inputs[0]).data_ptr() for _ in range(4)}
    assert len(addresses) == 1 and not addresses & {r.data_ptr() for r in results}

"""Narrowing at the program's edge."""

import math

import pytest
import torch

from poptorch import testing
from poptorch._types import host_tensor, ir_dtype, narrowed
from poptorch.errors import Error


def test_names():
    assert ir_dtype(torch.float64) == "f32" and ir_dtype(torch.int64) == "i32"
    assert ir_dtype(torch.bfloat16) == "bf16" and ir_dtype(torch.bool) == "bool"
    with testing.wide():
        assert ir_dtype(torch.float64) == "f64" and ir_dtype(torch.int64) == "i64"
    with pytest.raises(Error, match="torch.complex64 is not a type of the device"):
        ir_dtype(torch.complex64)


def test_values_keep_their_value():
    x = torch.tensor([-2**31, 5, 2**31 - 1])
    assert host_tensor(x, "x").tolist() == x.tolist()
    assert host_tensor(x, "x").dtype is torch.int32
    y = torch.randn(3, 4).t()
    assert torch.equal(host_tensor(y, "y"), y) and host_tensor(y, "y").is_contiguous()


def test_no_copy_where_none_is_needed():
    x = torch.randn(3)
    assert host_tensor(x, "x").data_ptr() == x.data_ptr()


def test_limits_saturate():
    limits = torch.tensor([torch.iinfo(torch.int64).min, 3, torch.iinfo(torch.int64).max])
    assert host_tensor(limits, "mask").tolist() == [-2**31, 3, 2**31 - 1]


@pytest.mark.parametrize("value", [2**31, -2**31 - 1, 2**40])
def test_values_that_do_not_fit(value):
    with pytest.raises(Error, match=rf"\[fc.x\] the value {value} does not fit into int32"):
        host_tensor(torch.tensor([1, value]), "fc.x")
    with testing.wide():
        assert host_tensor(torch.tensor([value]), "fc.x").item() == value


def test_float64_values_that_do_not_fit():
    with pytest.raises(Error, match=r"\[x\] the value -1e\+300 does not fit into float32"):
        host_tensor(torch.tensor([1.0, -1e300], dtype=torch.float64), "x")
    limits = torch.finfo(torch.float64)
    x = torch.tensor([limits.min, limits.max, 0.5, -math.inf], dtype=torch.float64)
    narrow = torch.finfo(torch.float32)
    assert host_tensor(x, "x").tolist() == [narrow.min, narrow.max, 0.5, -math.inf]
    assert host_tensor(torch.tensor([math.nan], dtype=torch.float64), "x").isnan().all()


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_unsigned_types(dtype):
    x = torch.tensor([3, 60000]).to(dtype)
    assert host_tensor(x, "x").dtype is torch.int32 and ir_dtype(dtype) == "i32"
    assert host_tensor(x, "x").tolist() == [3, 60000]
    with testing.wide():
        assert host_tensor(x, "x").dtype is torch.int64 and ir_dtype(dtype) == "i64"


@pytest.mark.parametrize("dtype, value", [(torch.uint32, 2**31), (torch.uint64, 2**64 - 5)])
def test_unsigned_values_that_do_not_fit(dtype, value):
    with pytest.raises(Error, match=rf"\[x\] the value {value} does not fit into int32"):
        host_tensor(torch.tensor([1, value], dtype=dtype), "x")


NOT_DENSE = {
    "sparse": (lambda: torch.eye(2).to_sparse(), "layout torch.sparse_coo. Pass x.to_dense()"),
    "no data": (lambda: torch.empty(2, device="meta"), "one on meta"),
}


@pytest.mark.parametrize("case", NOT_DENSE)
def test_tensors_that_are_not_dense(case):
    make, words = NOT_DENSE[case]
    with pytest.raises(Error, match=r"^\[x\] expected a") as caught:
        host_tensor(make(), "x")
    assert words in caught.value.message


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_quantized_tensors():
    x = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8)
    with pytest.raises(Error, match=r"\[x\] expected a plain tensor but got a quantized one"):
        host_tensor(x, "x")


def test_narrowed():
    assert narrowed(torch.float64) is torch.float32
    assert narrowed(torch.float16) is torch.float16

"""Narrowing at the program's edge."""

import pytest
import torch

from poptorch import testing
from poptorch._translate.types import host_tensor, ir_dtype, narrowed
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


def test_narrowed():
    assert narrowed(torch.float64) is torch.float32
    assert narrowed(torch.float16) is torch.float16

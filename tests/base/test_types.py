"""Narrowing at the program's edge."""

import math

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import poptorch
from poptorch import testing
from poptorch._base.types import host_tensor, ir_dtype, ir_type, narrowed, write_back
from poptorch.errors import Error
from tests.helpers import quiet_options

INT32, INT64 = torch.iinfo(torch.int32), torch.iinfo(torch.int64)


def test_names():
    assert ir_dtype(torch.float64) == "f32" and ir_dtype(torch.int64) == "i32"
    assert ir_dtype(torch.bfloat16) == "bf16" and ir_dtype(torch.bool) == "bool"
    with testing.wide():
        assert ir_dtype(torch.float64) == "f64" and ir_dtype(torch.int64) == "i64"
    with pytest.raises(Error, match="torch.complex64 is not a type of the device"):
        ir_dtype(torch.complex64)


def test_complex_tensors_are_pairs():
    z = torch.randn(2, 3, dtype=torch.complex128)
    assert ir_type(z) == ("f32", [2, 3, 2]) and ir_type(z.real) == ("f32", [2, 3])
    host = host_tensor(z.t().conj(), "z")
    assert host.is_contiguous() and torch.equal(host, z.t().conj().to(torch.complex64))
    same = z.to(torch.complex64)
    assert host_tensor(same, "z").data_ptr() == same.data_ptr()
    with pytest.raises(Error, match=r"\[z\] the value -1e\+200 does not fit into float32"):
        host_tensor(z - 1e200j, "z")
    before = z.clone()
    write_back(z, torch.view_as_real(host_tensor(z, "z")))
    assert torch.equal(z, before)  # the device has not changed it
    write_back(z, torch.view_as_real(host_tensor(z * 2, "z")))
    assert torch.equal(z, (before * 2).to(torch.complex64).to(torch.complex128))


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


def test_elements_that_the_device_leaves_alone_keep_their_value():
    x = torch.tensor([5, INT64.max, INT64.min, INT64.max], dtype=torch.int64)
    write_back(x, torch.tensor([6, INT32.max, INT32.min, 0], dtype=torch.int32))
    assert x.tolist() == [6, INT64.max, INT64.min, 0]
    largest = torch.finfo(torch.float64).max
    given = [0.1, 0.1, -0.0, -0.0, largest, math.nan, math.inf]
    x = torch.tensor(given, dtype=torch.float64)
    values = host_tensor(x, "x")
    values[1], values[3] = 0.25, 0.0
    write_back(x, values)
    assert x.tolist()[:2] == [0.1, 0.25] and x.signbit().tolist()[2:4] == [True, False]
    assert x[4] == largest and x[5].isnan() and x[6] == math.inf


def test_what_never_fitted_is_replaced():
    x = torch.tensor([2**40, 2**40], dtype=torch.int64)
    write_back(x, torch.tensor([INT32.max, 7], dtype=torch.int32))
    assert x.tolist() == [INT32.max, 7]
    x = torch.tensor([1e300], dtype=torch.float64)
    write_back(x, torch.tensor([math.inf]))
    assert x.tolist() == [math.inf]


@pytest.mark.parametrize("values", [[1, 2, INT64.max], [0.5, 0.1, -1e-60]])
def test_a_call_that_changes_one_element(values):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("kept", torch.tensor(values))

        def forward(self, x):
            x[0] = 3
            self.kept[0] = 3
            return x + 0

    dtype = torch.int64 if isinstance(values[0], int) else torch.float64
    x = torch.tensor(values, dtype=dtype)
    net = Net().to(None if dtype is torch.int64 else dtype)
    net.kept.copy_(x)
    model = poptorch.inferenceModel(net, quiet_options())
    model(x)
    model.copyWeightsToHost()
    assert x.tolist() == net.kept.tolist() == [3, *values[1:]]


def _freed():
    tensor = torch.ones(3)
    tensor.untyped_storage().resize_(0)
    return tensor


def _fake():
    with FakeTensorMode():
        return torch.ones(3)


WITHOUT_MEMORY = {"fake": _fake, "zero": lambda: torch._efficientzerotensor((3,)), "freed": _freed}


@pytest.mark.parametrize("name", WITHOUT_MEMORY)
@pytest.mark.parametrize("is_first", [True, False])
def test_arguments_without_memory(name, is_first):
    model = poptorch.inferenceModel(torch.nn.Identity(), quiet_options())
    if not is_first:
        model(torch.ones(3))
    with pytest.raises(Error, match=r"^\[input\] expected a tensor with values but got one without "
                                    r"memory, as a FakeTensor, one whose storage was freed and a "
                                    r"gradient that torch knows to be zero are\. Pass one that"):
        model(WITHOUT_MEMORY[name]())
    assert model(torch.ones(3)).tolist() == [1, 1, 1]


def test_weights_without_memory():
    net = torch.nn.BatchNorm1d(3).eval()
    net.running_mean = torch._efficientzerotensor((3,))
    with pytest.raises(Error, match=r"^\[running_mean\] .* without memory"):
        poptorch.inferenceModel(net, quiet_options())(torch.ones(2, 3))

"""Tensors without data: a new torch fails here first, by name."""

from pathlib import Path
from types import ModuleType

import pytest
import torch

from poptorch._base.torch_private import fake_tensors
from poptorch._base.torch_private import tracing as private


@pytest.fixture
def mode():
    return fake_tensors.new_fake_mode()


# What the module imports for itself.
_OWN = {"FakeTensor", "fast_detach", "in_kernel_invocation_manager", "map_only", "partial"}


def test_every_name_has_a_test():
    tested = Path(__file__).read_text()
    for name, value in vars(fake_tensors).items():
        if not (name.startswith("_") or name in _OWN or isinstance(value, ModuleType)):
            assert f"fake_tensors.{name}" in tested, f"fake_tensors.{name} has no test"


def test_fake_tensors(mode):
    with mode:
        x = torch.empty_strided((2, 3), (3, 1))
    assert fake_tensors.is_fake(x) and isinstance(mode, fake_tensors.FakeTensorMode)
    assert fake_tensors.device_of(x) == torch.device("cpu")
    with mode:
        assert (x + torch.ones(3)).shape == (2, 3)  # real tensors may take part


def test_fake_tensors_lie_as_real_ones_do(mode):
    for real in (torch.zeros(3, 4).t()[1:], torch.zeros(2, 1).expand(2, 5), torch.zeros(0)):
        fake = fake_tensors.fake_like(mode, real)
        assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), real.dtype)
        assert fake.storage_offset() == real.storage_offset() and not fake._is_view()
        assert fake.untyped_storage().nbytes() == real.untyped_storage().nbytes()


def test_new_fake_tensors_have_memory_of_their_own(mode):
    x = fake_tensors.new_fake(mode, (2, 3), (1, 2), torch.float16)
    assert fake_tensors.is_fake(x) and x.fake_mode is mode and fake_tensors.constant_of(x) is None
    assert (x.shape, x.stride(), x.dtype) == ((2, 3), (1, 2), torch.float16)
    assert fake_tensors.device_of(x) == torch.device("cpu") and not x.requires_grad


def test_kernels_for_tensors_without_data(mode):
    x = fake_tensors.new_fake(mode, (2, 3), (3, 1), torch.float32)
    first, second = fake_tensors.by_meta_kernel(mode, torch.ops.aten.split.Tensor, (x, 2, 1), {})
    assert fake_tensors.is_fake(first) and first.fake_mode is mode
    assert second.shape == (2, 1) and second.storage_offset() == 2
    assert second.untyped_storage()._cdata == x.untyped_storage()._cdata


def test_detached_shares_memory_but_not_history(mode):
    with mode:
        x = torch.nn.Parameter(torch.empty_strided((2, 3), (3, 1)))
    y = fake_tensors.detached(mode, x)
    assert fake_tensors.is_fake(y) and y is not x and not y.requires_grad
    assert y.shape == (2, 3) and y.fake_mode is mode


def test_swapped_objects_leave_views_what_they_are_of(mode):
    with mode:
        x = torch.empty(1, 3, requires_grad=True) * 1
        row = x[0]
        other = x.squeeze(0)
        x.note, other.note = "x", "other"
        fake_tensors.swap(x, other)
        assert (x.shape, x.note, other.shape, other.note) == ((3,), "other", (1, 3), "x")
        assert row._base is other and x._base is other
        x.mul_(2)
        assert (row.grad_fn(torch.empty(3))).shape == (1, 3)


def test_parameters_of_fake_tensors_are_parameters(mode):
    with mode:
        x = torch.nn.Parameter(torch.empty_strided((2,), (1,)))
    assert isinstance(x, torch.nn.Parameter) and fake_tensors.is_fake(x)


def test_data_dependent_outputs_have_their_exception(mode):
    with mode:
        x = torch.empty_strided((), ())
        with pytest.raises(fake_tensors.DataDependentOutputException):
            x.item()


def test_dynamic_shapes_have_their_exception(mode):
    with mode:
        x = torch.empty_strided((3,), (1,))
        with pytest.raises(fake_tensors.DynamicOutputShapeException) as raised:
            x.nonzero()
    assert raised.value.func is torch.ops.aten.nonzero.default
    assert isinstance(raised.value.func, private.OpOverload)


def test_constants_are_not_computed_with(mode):
    with mode:
        one = torch.tensor(1.0)
        assert fake_tensors.constant_of(one) is not None
        found = fake_tensors.called_without_constants(
            torch.ops.poptorch.dropout.default, (one, 0.5, 3), {})
    assert fake_tensors.constant_of(found) is None and fake_tensors.constant_of(one) is not None


def test_messages_name_ordinary_tensors(mode):
    with pytest.raises(TypeError) as raised, mode:
        torch.ones(2) + object()
    message = str(raised.value)
    assert fake_tensors.is_named_in(message)
    assert not fake_tensors.is_named_in(fake_tensors.shown_as_tensor(message))


def test_real_tensors_are_not_fake():
    assert not any(map(fake_tensors.is_fake, (torch.ones(1), torch.ones(1, device="meta"), 1)))

"""Weights that the device reads in the host's pages: each side sees its own values."""

import copy
import gc
import io

import numpy as np
import pytest
import torch
from torch import nn

import poptorch
from tests.run.drive import Driver

COUNT = (1 << 20) // 4  # floats of a weight of 1 MiB
TEXT = """
graph main {{
  loop {{body=@iteration, count=1}}
  output
}}

graph iteration {{
  %w = state {{path="w", role="parameter"}} : {type}
  %x = stream_in {{stream="x"}} : {type}
  %0 = add %x, %w : {type}
  stream_out %0 {{stream="y"}}
  output
}}
"""


def driver_of(count=COUNT, dtype="f32", **options):
    return Driver(TEXT.format(type=f"{dtype}[{count}]"), **options)


def share(driver, tensor):
    address = tensor.untyped_storage()._cdata
    return driver.executable.share_state("w", tensor.data_ptr(), tensor.nbytes, address)


def on_device(driver, replica=0):
    """The state as a run sees it; ``read_state`` must see the same."""
    zeros = torch.zeros(driver.executable.replicas, *driver.states["w"].sizes)
    seen = driver(x=zeros)["y"][replica]
    assert torch.equal(seen, driver.read("w", replica))
    return seen


def maps():
    """Maps of shared pages: ``(device's, host's)`` counts."""
    with open("/proc/self/maps") as file:
        kinds = [line.split()[1] for line in file if "poptorch_weights" in line]
    return sum(k.endswith("s") for k in kinds), sum(k.endswith("p") for k in kinds)


def inference(module):
    return poptorch.inferenceModel(module, poptorch.Options().showCompilationProgressBar(False))


def layers(count=3, width=512):
    return nn.Sequential(*[nn.Linear(width, width) for _ in range(count)])


# -- one state ---------------------------------------------------------------------------------


def test_it_is_read_in_the_pages_of_the_host():
    before = maps()
    driver, w = driver_of(), torch.randn(COUNT)
    values = w.clone()
    assert share(driver, w)
    assert maps()[0] == before[0] + 1 and maps()[1] > before[1]
    assert torch.equal(w, values) and torch.equal(on_device(driver), values)


@pytest.mark.parametrize("offset", [0, 16, 1024, 4096, 5008])
@pytest.mark.parametrize("count", [COUNT, COUNT + 1, COUNT + 1023, 3 * COUNT + 77])
def test_parts_of_a_storage(offset, count):
    storage = torch.randn(offset + count + 3000)
    values, part = storage.clone(), storage[offset:offset + count]
    driver = driver_of(count)
    assert share(driver, part)
    assert torch.equal(storage, values) and torch.equal(on_device(driver), part)
    part[[0, count // 2, -1]] = 5.0
    assert torch.equal(on_device(driver), values[offset:offset + count])
    storage.fill_(7.0)
    assert torch.equal(on_device(driver), values[offset:offset + count])
    assert share(driver, part)
    assert torch.equal(on_device(driver), torch.full((count,), 7.0))


def test_what_the_host_writes_is_not_seen():
    driver, w = driver_of(), torch.randn(COUNT)
    values, alias = w.clone(), w.numpy()
    view = w.view(2, -1)[1]
    assert share(driver, w)
    view.mul_(2)
    alias[::7] = 3
    expected = values.clone()
    expected[COUNT // 2:] *= 2
    expected[::7] = 3
    assert torch.equal(w, expected)
    assert torch.equal(on_device(driver), values)
    assert share(driver, w)
    assert torch.equal(on_device(driver), expected)
    assert np.shares_memory(alias, w.numpy())


def test_written_bytes_take_the_place_of_shared_ones():
    driver, w = driver_of(replicas=2), torch.randn(COUNT)
    values = w.clone()
    assert share(driver, w)
    other = torch.randn(COUNT)
    driver.write("w", other, replica=1)
    assert torch.equal(on_device(driver, 0), values)
    assert torch.equal(on_device(driver, 1), other)
    assert torch.equal(w, values)
    assert share(driver, w)
    assert torch.equal(on_device(driver, 1), values)
    driver.executable.clear_state("w")
    for replica in range(2):
        assert not on_device(driver, replica).any()
    assert torch.equal(w, values)


def test_what_runs_change_is_copied():
    text = TEXT.format(type=f"f32[{COUNT}]").replace(
        '  stream_out', '  assign %0 {path="w"}\n  stream_out')
    driver = Driver(text)
    assert not share(driver, torch.randn(COUNT))


def test_small_ones_are_copied():
    assert not share(driver_of(count=100), torch.randn(100))


def test_the_switch(monkeypatch):
    monkeypatch.setenv("POPTORCH_OFF", "share_weights")
    driver, w = driver_of(), torch.randn(COUNT)
    assert not share(driver, w)
    model, x = layers(), torch.randn(2, 512)
    before = maps()
    torch.testing.assert_close(inference(model)(x), model(x).detach())
    assert maps() == before


def other_memory():
    array = torch.from_numpy(np.random.rand(COUNT + 16).astype(np.float32))
    odd = torch.randn(COUNT + 1)[1:]
    return {"numpy": array[:COUNT], "shared": torch.randn(COUNT).share_memory_(), "odd": odd}


@pytest.mark.parametrize("name", ["numpy", "shared", "odd"])
def test_other_memory_is_left_alone(name, tmp_path):
    before = maps()
    tensor = other_memory()[name]
    assert not share(driver_of(), tensor)
    assert maps() == before


def test_a_file_is_left_alone(tmp_path):
    tensor = torch.from_file(str(tmp_path / "w"), shared=True, size=COUNT).fill_(2.0)
    assert not share(driver_of(), tensor)


# -- lives -------------------------------------------------------------------------------------


def test_the_host_may_end_first():
    before = maps()
    driver, w = driver_of(), torch.randn(COUNT)
    values = w.clone()
    assert share(driver, w)
    del w
    gc.collect()
    assert maps() == (before[0] + 1, before[1])
    new = [torch.full((COUNT,), 9.0) for _ in range(4)]  # the same addresses, perhaps
    assert torch.equal(on_device(driver), values)
    assert all(tensor.eq(9.0).all() for tensor in new)


def test_a_storage_may_get_other_memory():
    driver, w = driver_of(), torch.randn(COUNT)
    values = w.clone()
    assert share(driver, w)
    w.untyped_storage().resize_(0)
    w.untyped_storage().resize_(values.nbytes)
    w.fill_(1.0)
    assert torch.equal(on_device(driver), values)
    assert share(driver, w)
    assert on_device(driver).eq(1.0).all()
    w.share_memory_()
    assert on_device(driver).eq(1.0).all() and w.eq(1.0).all()
    assert not share(driver, w)


def test_the_device_may_end_first():
    before = maps()
    driver, w = driver_of(), torch.randn(COUNT)
    values = w.clone()
    assert share(driver, w)
    w[:100] = 1.0
    del driver
    gc.collect()
    assert maps()[0] == before[0]
    assert torch.equal(w[100:], values[100:])
    again = driver_of()
    assert share(again, w)  # its pages are its own again
    assert torch.equal(on_device(again), w)


def test_two_programs_share_one_copy():
    before = maps()
    first, second, w = driver_of(), driver_of(replicas=2), torch.randn(COUNT)
    values = w.clone()
    assert share(first, w) and share(second, w)
    assert maps()[0] == before[0] + 1
    w.neg_()
    assert share(second, w)
    assert torch.equal(on_device(first), values)
    assert torch.equal(on_device(second, 1), -values)
    del second
    gc.collect()
    assert torch.equal(on_device(first), values) and torch.equal(w, -values)
    assert share(first, w)
    assert torch.equal(on_device(first), -values)


def test_again_and_again_takes_nothing_more():
    before = maps()
    driver, w = driver_of(), torch.randn(COUNT)
    for step in range(50):
        if step % 3:
            w[step] = step
        assert share(driver, w)
        assert torch.equal(on_device(driver), w)
    assert maps()[0] == before[0] + 1


# -- models ------------------------------------------------------------------------------------


def test_a_model_and_its_uploads():
    model, x = layers(), torch.randn(4, 512)
    compiled, first = inference(model), model(x).detach()
    torch.testing.assert_close(compiled(x), first)
    assert maps()[0] >= 3
    with torch.no_grad():
        model[1].weight.mul_(1.5)
    torch.testing.assert_close(compiled(x), model(x).detach())
    other = layers()
    compiled.load_state_dict(other.state_dict())
    torch.testing.assert_close(compiled(x), other(x).detach())


def test_copies_of_the_module():
    model, x = layers(), torch.randn(4, 512)
    compiled, expected = inference(model), model(x).detach()
    compiled(x)
    twin, file = copy.deepcopy(model), io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    torch.testing.assert_close(twin(x), expected)
    torch.testing.assert_close(loaded(x), expected)
    torch.testing.assert_close(compiled(x), model(x).detach())
    compiled.destroy()
    assert not any(parameter.any() for parameter in model.parameters())


def test_training_and_inference_of_one_module():
    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = layers()

        def forward(self, x, y=None):
            out = self.layers(x)
            return out if y is None else (out, nn.functional.mse_loss(out, y))

    model, x = WithLoss(), torch.randn(4, 512)
    trained = poptorch.trainingModel(
        model, poptorch.Options().showCompilationProgressBar(False),
        torch.optim.SGD(model.parameters(), lr=0.5))
    tested = inference(model)
    seen = [tested(x)]
    for _ in range(3):
        trained(x, torch.zeros(4, 512))
        seen.append(tested(x))
        torch.testing.assert_close(seen[-1], model(x).detach())
    assert all(not torch.equal(a, b) for a, b in zip(seen, seen[1:]))


def test_tied_and_frozen_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(512, 512), nn.Linear(512, 512)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(self.first(x))

    model, x = Tied(), torch.randn(4, 512)
    compiled = inference(model)
    torch.testing.assert_close(compiled(x), model(x).detach())
    with torch.no_grad():
        model.first.weight.mul_(-1)
    compiled.copyWeightsToDevice()
    torch.testing.assert_close(compiled(x), model(x).detach())

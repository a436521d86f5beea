"""Block annotations as objects: what they keep of the module, copies, pickles, errors."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

import poptorch
from tests.helpers import run_python


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 3)
        self.second = nn.Linear(3, 2)

    def forward(self, x):
        return self.second(self.first(x))


def annotated():
    model = Model()
    names, keys, attributes = dir(model.first), list(model.state_dict()), vars(model.first)
    same = poptorch.BeginBlock(model.first, "one", ipu_id=1)
    assert same is model.first
    assert set(names) <= set(dir(model.first)) and list(model.state_dict()) == keys
    assert vars(model.first) is attributes
    return model


def test_an_annotated_module_is_still_itself():
    model = annotated()
    assert isinstance(model.first, nn.Linear) and type(model.first).__name__ == "Linear"
    model.load_state_dict(Model().state_dict(), strict=True)
    model.first.register_buffer("extra", torch.ones(1))
    model.first.register_parameter("more", nn.Parameter(torch.ones(1)))
    assert "first.extra" in model.state_dict()
    assert "first.more" in dict(model.named_parameters())
    assert model(torch.ones(1, 2)).shape == (1, 2)


@pytest.mark.parametrize("copied", [
    copy.copy, copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_copies_keep_the_annotation(copied):
    model = annotated()
    layer = copied(model.first)
    assert layer is not model.first
    assert (layer._user_id, layer._ipu_id) == ("one", 1)
    assert torch.equal(layer.weight, model.first.weight)
    poptorch.removeBlocks(layer)
    assert type(layer) is nn.Linear and not hasattr(layer, "_user_id")
    assert (model.first._user_id, model.first._ipu_id) == ("one", 1)


@pytest.mark.sampled
def test_a_saved_model_keeps_its_annotations_in_another_process(tmp_path):
    model = nn.Sequential(poptorch.BeginBlock(nn.Linear(2, 2), "saved", ipu_id=3), nn.ReLU())
    torch.save(model, tmp_path / "model.pt")
    words = run_python(
        "import torch, poptorch\n"
        f"model = torch.load({str(tmp_path / 'model.pt')!r}, weights_only=False)\n"
        "print(model[0]._user_id, model[0]._ipu_id, model(torch.ones(1, 2)).shape)")
    assert words.split(" ", 2)[:2] == ["saved", "3"]


def test_a_model_cannot_be_annotated_twice():
    model = annotated()
    with pytest.raises(poptorch.Error, match="module has already been assigned to a block: "
                       "user_id='one', ipu_id=1; now user_id='two'.*removeBlocks"):
        poptorch.BeginBlock(model.first, "two")
    poptorch.removeBlocks(model)
    poptorch.BeginBlock(model.first, "two")
    assert model.first._user_id == "two"


@pytest.mark.parametrize("name", ["_user_id", "_ipu_id"])
def test_a_module_with_such_an_attribute_of_its_own(name):
    layer = nn.Linear(2, 2)
    setattr(layer, name, 3.5)
    with pytest.raises(poptorch.Error, match=rf"\[BeginBlock\] Linear has an attribute {name} of "
                                             r"its own, 3.5, .*poptorch.Block in forward"):
        poptorch.BeginBlock(layer, "one", 0)
    assert type(layer) is nn.Linear and getattr(layer, name) == 3.5


@pytest.mark.parametrize("begin", [
    poptorch.Block, poptorch.Block.start, poptorch.BlockFunction, poptorch.Stage, poptorch.Phase,
    lambda name: poptorch.BeginBlock(nn.ReLU(), name), poptorch.PipelinedExecution])
def test_a_block_without_a_name_is_not_one_of_an_empty_name(begin):
    with pytest.raises(ValueError, match=r"^\[[\w.]+\] .* empty"):
        begin("")


class Sliced(nn.Module):
    def __init__(self):
        super().__init__()
        self.whole = poptorch.BeginBlock(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Tanh()), "a")

    def forward(self, x):
        return self.whole[:2](x)


def test_a_slice_of_an_annotated_sequential_begins_no_block():
    net, x = Sliced(), torch.randn(3, 2)
    model = poptorch.inferenceModel(net, poptorch.Options().showCompilationProgressBar(False))
    torch.testing.assert_close(model(x), net(x))
    part = net.whole[:2]
    assert "BeginBlock" not in poptorch.module_repr(part) and len(copy.deepcopy(part)) == 2
    assert poptorch.BeginBlock(part, "b")._user_id == "b"
    assert type(copy.deepcopy(part)) is type(part) and copy.deepcopy(part)._user_id == "b"
    poptorch.removeBlocks(part)
    inner = net.whole[:1]
    poptorch.removeBlocks(inner)
    assert type(part) is type(inner) is nn.Sequential and net.whole._user_id == "a"


def test_remove_blocks_works_on_all_parts():
    model = annotated()
    poptorch.BeginBlock(model.second)
    poptorch.BeginBlock(model)
    poptorch.removeBlocks(model)
    assert [type(part) for part in model.modules()] == [Model, nn.Linear, nn.Linear]
    assert not [name for part in model.modules() for name in vars(part) if name == "_ipu_id"]
    with pytest.raises(poptorch.Error, match="expected a torch.nn.Module but got int"):
        poptorch.removeBlocks(3)


def test_a_function_that_begins_a_block():
    function = poptorch.BeginBlock(torch.relu, user_id="f", ipu_id=2)
    again = pickle.loads(pickle.dumps(function))
    assert (again._user_id, again._ipu_id) == ("f", 2)
    assert again(torch.tensor(-1.0)) == 0


def test_weights_can_be_loaded_by_file():
    stream = io.BytesIO()
    torch.save(annotated().state_dict(), stream)
    stream.seek(0)
    assert not Model().load_state_dict(torch.load(stream)).missing_keys

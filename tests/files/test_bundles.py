"""Several programs over one set of weights in a file."""

import os
import zipfile

import pytest
import torch

import poptorch
from tests.files.test_bad_files import changed_member, rewritten
from tests.helpers import quiet_options


class Net(torch.nn.Module):
    """A buffer that training changes, tied weights, dropout."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, 6)
        self.again = self.fc
        self.norm = torch.nn.BatchNorm1d(6)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.norm(self.again(self.fc(x))))


def pair():
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    train = poptorch.trainingModel(net, quiet_options(randomSeed=3), optimizer,
                                   loss=torch.nn.MSELoss())
    serve = poptorch.inferenceModel(net, quiet_options()).eval()
    return train, serve


def data():
    return torch.randn(5, 6), torch.randn(5, 6)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    train, serve = pair()
    x, y = torch.ones(5, 6), torch.zeros(5, 6)
    train.model.train()
    train(x, y)
    serve(x)
    return poptorch.save_bundle({"train": train, "serve": serve},
                                tmp_path_factory.mktemp("saved") / "net.poptorch")


def test_both_programs_go_on_with_one_set_of_weights(tmp_path):
    train, serve = pair()
    x, y = data()
    train.train()(x, y)
    serve(x)
    path = poptorch.save_bundle({"serve": serve, "train": train}, tmp_path / "net.poptorch")
    again = poptorch.load_bundle(path)
    assert list(again) == ["serve", "train"]
    assert torch.equal(serve(x), again["serve"](x))
    for _ in range(3):
        x, y = data()
        ours, theirs = train(x, y), again["train"](x, y)
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs))
        assert torch.equal(serve(x), again["serve"](x))
    state = again["serve"].state_dict()
    assert all(torch.equal(value, state[name]) for name, value in train.state_dict().items())
    assert again["train"].model.fc.weight is again["serve"].model.fc.weight


def test_weights_are_there_once(saved):
    with zipfile.ZipFile(saved) as archive:
        names = archive.namelist()
    assert names.count("weights.safetensors") == 1
    assert {"train/plan.ir", "serve/plan.ir", "train/state.safetensors"} < {*names}
    assert not any(name.endswith("/weights.safetensors") for name in names)


def test_options_may_be_edited(saved):
    again = poptorch.load_bundle(saved, lambda options: options.useIpuModel(True))
    assert all(model.options.use_ipu_model is True for model in again.values())


@pytest.mark.parametrize("change, words", [
    (changed_member("serve/plan.ir", b"addr=0", b"addr=-64"), r"\(serve\) is damaged: its plan.ir"),
    (lambda members, _: members.pop("serve/plan.ir"), r"\(serve\) is damaged: it has no plan.ir"),
    (lambda _, manifest: manifest["programs"].pop("serve"), r"the programs .'train'., it has"),
    (lambda members, _: members.update({"serve/other.ir": b""}), "a member 'serve/other.ir'"),
    (lambda members, _: members.update({"../plan.ir": b""}), "a member '../plan.ir'"),
    (lambda _, manifest: manifest.update(programs=3), "its manifest.json is not"),
])
def test_damaged_bundles(change, words, saved, tmp_path):
    path = rewritten(saved, tmp_path / "bad", change)
    with pytest.raises(poptorch.Error, match=rf"^\[load\] {path}.*{words}"):
        poptorch.load_bundle(path)


def test_the_other_kind_of_file(saved, tmp_path):
    with pytest.raises(poptorch.Error, match=r"has several programs: train, serve\. Use "
                                             r"poptorch.load_bundle\(\), or --program NAME of"):
        poptorch.load(saved)
    model = poptorch.inferenceModel(torch.nn.Linear(2, 2), quiet_options())
    path = model.compileAndExport(tmp_path / "one", torch.ones(2))
    with pytest.raises(poptorch.Error, match=r"has one program, which has no name\. Use "
                                             r"poptorch.load\(\), or leave out --program"):
        poptorch.load_bundle(path)


def test_what_cannot_be_a_bundle(tmp_path):
    model = poptorch.inferenceModel(torch.nn.Linear(2, 2), quiet_options())
    other = poptorch.inferenceModel(torch.nn.Linear(2, 2), quiet_options())
    for one in (model, other):
        one.compile(torch.ones(2))
    for wrong in ({}, [model], {"a": torch.nn.Linear(2, 2)}):
        with pytest.raises(TypeError, match="^.save_bundle. expected a dictionary"):
            poptorch.save_bundle(wrong, tmp_path / "net")
    for name in ("", "a/b", "a" * 65, 3):
        with pytest.raises(poptorch.Error, match=r"^\[save_bundle\] expected a name of up to 64"):
            poptorch.save_bundle({name: model}, tmp_path / "net")
    with pytest.raises(poptorch.Error, match=r"^\[save_bundle\] the modules of a and b have "
                                             r"different tensors with the path weight\. A bundle"):
        poptorch.save_bundle({"a": model, "b": other}, tmp_path / "net")
    other.destroy()
    with pytest.raises(poptorch.Error, match=r"^\[save_bundle\] Model has not been compiled"):
        poptorch.save_bundle({"a": model, "b": other}, tmp_path / "net")
    assert os.listdir(tmp_path) == []

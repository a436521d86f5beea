"""A program from a file for a wrapper with other options."""

import pytest
import torch
from torch import nn

import poptorch
from tests.helpers import quiet_options as options

X = torch.randn(8, 3)


def exported(net, opts, folder):
    return poptorch.inferenceModel(net, opts).compileAndExport(folder / "net.poptorch", X,
                                                               export_model=False)


@pytest.mark.parametrize(("method", "name"), [
    ("enableFloatingPointExceptions", "floating_point_exceptions"),
    ("recordNonFinite", "record_non_finite")])
def test_a_program_that_does_not_keep_each_operation(method, name, tmp_path):
    opts, net = options(**{f"Precision__{method}": True}), nn.Linear(3, 3)
    path = exported(net, options(), tmp_path)
    model = poptorch.inferenceModel(net, opts)
    with pytest.raises(poptorch.Error, match=(
            r"^\[loadExecutable\] .*net.poptorch: the executable was compiled with "
            rf"Precision.{name}=False, this wrapper specifies True, for which a program "
            "keeps each operation. Wrap")):
        model.loadExecutable(path)
    assert not model.isCompiled()
    model.loadExecutable(exported(net, opts, tmp_path))
    assert model.isCompiled()
    other = poptorch.inferenceModel(net, options())  # what looks is in the program, or is not
    other.loadExecutable(exported(net, opts, tmp_path))
    assert torch.equal(other(X), model(X))


def test_buffers_that_replicas_would_share(tmp_path):
    net = nn.BatchNorm1d(3).train()
    path = exported(net, options(replicationFactor=2, broadcastBuffers=False), tmp_path)
    model = poptorch.inferenceModel(net, options(replicationFactor=2))
    with pytest.raises(poptorch.Error, match=r"^\[broadcastBuffers\] .*net.poptorch: forward "
                       r"changes running_mean.* does not support broadcasting"):
        model.loadExecutable(path)
    assert not model.isCompiled()
    path = exported(net.eval(), options(replicationFactor=2, broadcastBuffers=False), tmp_path)
    model = poptorch.inferenceModel(net, options(replicationFactor=2))  # which changes none
    model.loadExecutable(path)
    assert torch.allclose(model(X), net(X), atol=1e-6)


def test_buffers_that_options_name(tmp_path):
    net = nn.BatchNorm1d(3).eval()
    model = poptorch.inferenceModel(net, options(updatableNamedBuffers=["nope"]))
    with pytest.raises(poptorch.Error, match=r"^\[updatableNamedBuffers\] .*the module has no "
                                             "buffer 'nope'"):
        model.loadExecutable(exported(net, options(), tmp_path))
    assert not model.isCompiled()


def test_gradients_that_are_kept(tmp_path):
    class Net(nn.Linear):
        def forward(self, x):
            return poptorch.identity_loss(super().forward(x), "sum")

    def exported_file():
        return poptorch.trainingModel(Net(3, 3), options()).compileAndExport(
            tmp_path / "net.poptorch", X, export_model=False)

    with poptorch.testing.keep_gradients():
        path = exported_file()
    words = (r"^\[loadExecutable\] .*net.poptorch: the executable was compiled within `with "
             r"poptorch.testing.keep_gradients\(\):`. Load it within that.$")
    with pytest.raises(poptorch.Error, match=words):
        poptorch.trainingModel(Net(3, 3), options()).loadExecutable(path)
    path = exported_file()
    with poptorch.testing.keep_gradients(), pytest.raises(
            poptorch.Error, match="compiled outside of `with .*Load it outside of that"):
        poptorch.trainingModel(Net(3, 3), options()).loadExecutable(path)

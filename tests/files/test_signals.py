"""Handlers of signals that raise while a file is read."""

import contextlib
import signal
import time

import pytest
import torch

import poptorch
from poptorch._device import device
from poptorch._files import archive, executable, program
from poptorch._runtime.interface import Interface
from tests.helpers import quiet_options as options

X = torch.ones(3, 4)


class Raised(Exception):
    """What the handler raises."""


@contextlib.contextmanager
def raising_in(monkeypatch, owner, name):
    """A signal comes when a function is called."""
    function = getattr(owner, name)

    def call(*args, **kwargs):
        signal.raise_signal(signal.SIGUSR1)
        time.sleep(0)
        return function(*args, **kwargs)

    def handler(*_):
        raise Raised

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, call)
            yield
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("how", ["load", "loadExecutable"])
@pytest.mark.parametrize(("owner", "name"), [
    (archive, "read"), (executable.tensors, "unpacked"), (executable.Decoder, "document"),
    (executable.description, "check"), (program._C, "assemble_text"),
    (Interface, "check_states"), (executable.File, "write_state"), (device.Device, "take")])
def test_what_a_handler_raises_stays_what_it_is(how, owner, name, monkeypatch, tmp_path):
    net = torch.nn.Linear(4, 2)
    path = poptorch.inferenceModel(net, options()).compileAndExport(tmp_path / "net.poptorch", X)
    again = poptorch.inferenceModel(net, options())
    read = (lambda: poptorch.load(path)) if how == "load" else (lambda: again.loadExecutable(path))
    with raising_in(monkeypatch, owner, name), pytest.raises(Raised):
        read()
    if again.isCompiled():
        again.destroy()
    assert not again.isAttachedToDevice()
    model = read() or again
    assert torch.equal(model(X), net(X))

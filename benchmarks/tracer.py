"""The bare capture of a training step or inference by PyTorch's own tracer, for comparison."""

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx


def trace(job):
    """A graph of the forward pass, the loss and all gradients, from tensors without data."""
    module, inputs = job.module, job.parts()[0]
    names = [name for name, _ in module.named_parameters()]
    tensors = [*module.parameters(), *module.buffers()]
    keys = names + [name for name, _ in module.named_buffers()]

    def step(tensors, inputs):
        state = dict(zip(keys, tensors, strict=True))
        if not module.training:
            return functional_call(module, state, (inputs[0],))
        out, loss = functional_call(module, state, tuple(inputs))
        return out, loss, torch.autograd.grad(loss, tensors[: len(names)])

    mode = FakeTensorMode()
    fake = [mode.from_tensor(tensor) for tensor in tensors]
    with mode, torch.set_grad_enabled(module.training):
        return make_fx(step)(fake, [mode.from_tensor(x) for x in inputs])

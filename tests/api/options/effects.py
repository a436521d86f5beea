"""What the tests of options' effects share: small models, and runs of them."""

import torch

import poptorch


class Scale(torch.nn.Module):
    """``x * w`` with one parameter; the loss is its sum."""

    def __init__(self, dtype=torch.float32, size=2):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(size, dtype=dtype))

    def forward(self, x):
        y = x * self.w
        return y, poptorch.identity_loss(y.sum(), "none")


class Counter(torch.nn.Module):
    """Adds its input to a buffer and returns the buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(1))
        self.register_buffer("offset", torch.zeros(1))

    def forward(self, x):
        self.total += x.sum()
        return self.total + self.offset


def gradient(options, x, dtype=torch.float32):
    """The gradient of ``Scale.w`` that the optimizer sees in one call."""
    with poptorch.testing.keep_gradients():
        model = poptorch.trainingModel(Scale(dtype, x.shape[-1]), options)
        model(x)
    return poptorch.testing.gradients(model)["w"], model


def ir(options, module, *args, step="translate"):
    """The IR text of an inference model."""
    model = poptorch.inferenceModel(module, options)
    model.compile(*args)
    return model.ir(step)

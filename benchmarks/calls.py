"""The matrix products and convolutions of one step, listed from PyTorch while it runs the step.

PyTorch's calls do not depend on how poptorch compiles, so the list, and the floor made from it,
is the same whatever poptorch does. Biases are left out: adding one is no product.
"""

import contextlib
import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode


@dataclass(frozen=True)
class Operand:
    """Sizes and strides of a tensor."""

    sizes: tuple
    strides: tuple

    @staticmethod
    def of(tensor):
        """Those of a tensor; one with elements at the same place counts as contiguous."""
        if 0 in tensor.stride():
            return Operand.plain(*tensor.shape)
        return Operand(tuple(tensor.shape), tuple(tensor.stride()))

    @staticmethod
    def plain(*sizes):
        """A contiguous one."""
        return Operand(sizes, torch.empty(sizes, device="meta").stride())

    def count(self):
        """Number of elements."""
        return math.prod(self.sizes)


@dataclass(frozen=True)
class Call:
    """One product.

    ``kind`` is mm or bmm (operands a, b), conv (x, weight), conv_input or conv_weight (gradient of
    the result, x, weight). ``settings`` are a convolution's stride, padding, dilation, transposed,
    output padding and groups.
    """

    kind: str
    operands: tuple
    settings: tuple = ()

    def result(self):
        """Sizes of the result."""
        a, b = self.operands[:2]
        if self.kind in ("mm", "bmm"):
            return (*a.sizes[:-1], b.sizes[-1])
        if self.kind == "conv_input":
            return b.sizes
        if self.kind == "conv_weight":
            return self.operands[2].sizes
        x, weight = (torch.empty(o.sizes, device="meta") for o in self.operands)
        return tuple(torch.ops.aten.convolution(x, weight, None, *self.settings).shape)

    def flops(self):
        """Multiplications and additions."""
        if self.kind in ("mm", "bmm"):
            return 2 * math.prod(self.result()) * self.operands[0].sizes[-1]
        out = self.result() if self.kind == "conv" else self.operands[0].sizes
        x, weight = self.operands[-2:]
        is_transposed = self.settings[3]
        spots = math.prod(x.sizes if is_transposed else out) // (1 if is_transposed else out[1])
        return 2 * spots * weight.count() // (x.sizes[1] if is_transposed else 1)

    def bytes(self):
        """What must be read and written at least, in float32."""
        read = self.operands
        if self.kind in ("conv_input", "conv_weight"):
            read = [self.operands[0], self.operands[2 if self.kind == "conv_input" else 1]]
        return 4 * (sum(operand.count() for operand in read) + math.prod(self.result()))


def _products(kind, a, b):
    return [Call(kind, (Operand.of(a), Operand.of(b)))]


def _settings(values):
    return tuple(tuple(v) if isinstance(v, list | tuple) else v for v in values)


def _convolution(args):
    return [Call("conv", (Operand.of(args[0]), Operand.of(args[1])), _settings(args[3:9]))]


def _convolution_backward(args):
    operands, mask = tuple(Operand.of(x) for x in args[:3]), args[10]
    kinds = ("conv_input", "conv_weight")
    wanted = [kind for kind, is_wanted in zip(kinds, mask, strict=False) if is_wanted]
    return [Call(kind, operands, _settings(args[4:10])) for kind in wanted]


def _attention(q, k, is_causal, products):
    """Products of length x width by width x length; half of the heads stand for a causal mask."""
    batch = q.shape[0] * q.shape[1] // (2 if is_causal else 1)
    a, b = (Operand.plain(batch, x.shape[2], x.shape[3]) for x in (q, k))
    b = Operand((b.sizes[0], b.sizes[2], b.sizes[1]), (b.strides[0], 1, b.sizes[2]))
    scores = Operand.plain(batch, q.shape[2], k.shape[2])
    values = Operand.plain(batch, k.shape[2], q.shape[3])
    kinds = [Call("bmm", (a, b)), Call("bmm", (scores, values))]
    return [kinds[index % 2] for index in range(products)]


# The products in an op of ATen. The rest of the step counts as free.
RULES = {
    "mm": lambda args: _products("mm", *args[:2]),
    "addmm": lambda args: _products("mm", *args[1:3]),
    "bmm": lambda args: _products("bmm", *args[:2]),
    "baddbmm": lambda args: _products("bmm", *args[1:3]),
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "_scaled_dot_product_flash_attention_for_cpu": lambda args: _attention(
        args[0], args[1], len(args) > 4 and args[4], 2
    ),
    # the scores are not kept, so five products are needed
    "_scaled_dot_product_flash_attention_for_cpu_backward": lambda args: _attention(
        args[1], args[2], args[7], 5
    ),
}


class Recorder(TorchDispatchMode):
    """Lists the calls made while it is active."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        rule = RULES.get(func.overloadpacket.__name__)
        if rule:
            self.calls += rule(args)
        return func(*args, **(kwargs or {}))


def recurrent_products(layer, batch, steps, trains):
    """Products of a recurrent module's layers: over the whole sequence where that is possible."""
    gates = {"LSTM": 4, "GRU": 3}[layer.mode]
    hidden, rows, products = layer.hidden_size, batch * steps, []

    def mm(count, m, k, n):
        products.extend([Call("mm", (Operand.plain(m, k), Operand.plain(k, n)))] * count)

    for index in range(layer.num_layers):
        width = layer.input_size if index == 0 else hidden
        mm(1, rows, width, gates * hidden)
        mm(steps, batch, hidden, gates * hidden)
        if trains:
            mm(steps, batch, gates * hidden, hidden)
            mm(1, gates * hidden, rows, width)
            mm(1, gates * hidden, rows, hidden)
        if trains and index > 0:
            mm(1, rows, gates * hidden, width)
    return products


class _Stub(nn.Module):
    """Stands for a recurrent module: a result of the right shape, and its products in the list."""

    def __init__(self, layer, calls):
        super().__init__()
        self.layer, self.calls = layer, calls

    def forward(self, x):
        batch, steps = x.shape[:2]
        self.calls += recurrent_products(self.layer, batch, steps, self.training)
        out = x.new_zeros(batch, steps, self.layer.hidden_size)
        return out.requires_grad_(self.training), None


@contextlib.contextmanager
def _attention_by_products():
    """Encoder layers and attention call no op that computes all of them in one in inference."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def record(module, inputs):
    """Calls of one step: forward and, in training mode, backward.

    Args:
        module: gives ``(out, loss)`` in training mode. Its recurrent parts are replaced.
        inputs: of one step; only the first is used in inference.
    """
    recorder = Recorder()
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.RNNBase):
                setattr(parent, name, _Stub(child, recorder.calls).train(module.training))
    with recorder, _attention_by_products():
        if module.training:
            module(*inputs)[1].backward()
        else:
            with torch.no_grad():  # inference_mode would show linear and conv2d whole
                module(inputs[0])
    return recorder.calls

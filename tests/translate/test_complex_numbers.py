"""Complex numbers: pairs of real numbers in the program, complex tensors outside."""

import re

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map_only

import poptorch
from poptorch import testing
from tests.helpers import Applied, Cases, check_narrow, quiet_options


def complexes(*sizes):
    return torch.randn(*sizes, dtype=torch.complex64)


def window(z):
    return torch.hann_window(16, dtype=z.real.dtype)


def spectrogram(z):
    return torch.stft(z.real.reshape(-1).repeat(4), 16, window=window(z), return_complex=True)


def assigned(z):
    z = z.clone()
    z[0] = 1j
    z.mul_(2).add_(1)
    z.real[2] = 5
    z.t()[1] -= 3j
    return z


# Each takes two complex matrices of [3, 4].
FUNCTIONS = {
    "add": lambda z, w: z + w, "subtract a multiple": lambda z, w: torch.sub(z, w, alpha=3),
    "add a complex multiple": lambda z, w: torch.add(z, w, alpha=2j),
    "add a number": lambda z, w: z + 1j, "subtract from a number": lambda z, w: 2 - z,
    "add reals": lambda z, w: z + w.real, "multiply": lambda z, w: z * w,
    "multiply reals": lambda z, w: w.real * z, "multiply by i": lambda z, w: z.real * 1j,
    "divide": lambda z, w: z / w, "divide by reals": lambda z, w: z / (w.real + 5),
    "conjugate": lambda z, w: z.conj(),
    "conjugate product": lambda z, w: z.conj() * w,
    "adjoint": lambda z, w: z.mH, "parts": lambda z, w: (z.real, z.imag, z.conj().imag),
    "angle": lambda z, w: z.angle(), "magnitude": lambda z, w: z.abs(),
    "polar": lambda z, w: torch.polar(z.abs(), w.real), "sign": lambda z, w: torch.sgn(z),
    "exp": lambda z, w: z.exp(), "power": lambda z, w: z ** 2 + w ** 0.5,
    "log": lambda z, w: torch.log(z) + torch.tanh(w), "addcmul": lambda z, w: torch.addcmul(
        z, z, w, value=0.5),
    "pairs": lambda z, w: torch.view_as_complex(torch.view_as_real(z) * 2),
    "matrices": lambda z, w: z @ w.mT, "real matrix": lambda z, w: z @ w.real.mT.to(z.dtype),
    "batches": lambda z, w: torch.stack([z, w]) @ torch.stack([w, z]).mT,
    "dot": lambda z, w: torch.dot(z[0], w[1]) + torch.vdot(z[1], w[0]),
    "vector": lambda z, w: z @ w[0], "einsum": lambda z, w: torch.einsum("bi,bi->b", z, w),
    "linear": torch.nn.functional.linear,
    "convolution": lambda z, w: torch.nn.functional.conv1d(z[None], w[:, :3, None]),
    "views": lambda z, w: (z.t(), z[1], z[:, 1:3], z.reshape(-1), z.expand(2, 3, 4), z.unbind(1)),
    "joined": lambda z, w: (torch.cat([z, w]), torch.cat([z, w.real]), torch.stack([z, w], 1)),
    "sums": lambda z, w: (z.sum(), w.mean(1), z.cumsum(0), z.trace()),
    "moved": lambda z, w: (z.flip(0), z.roll(1, 1), z.tril(), torch.nn.functional.pad(z, (1, 2))),
    "indexed": lambda z, w: (z[[2, 0]], z.gather(1, torch.tensor([[3], [0], [1]]))),
    "chosen": lambda z, w: (torch.where(z.real > 0, z, w), z.masked_fill(w.real > 0, 2 + 1j)),
    "assigned": lambda z, w: assigned(z) * w,
    "new": lambda z, w: (z.new_zeros(2), torch.ones_like(z), torch.full((2,), 1 + 2j) + w[0, :2]),
    "to complex": lambda z, w: z.real.to(z.dtype) * w,
    "to reals": lambda z, w: torch.view_as_real(z).to(torch.float16),
    "inverse": lambda z, w: torch.linalg.inv(z[:, :3] + 3 * torch.eye(3)),
    "values": lambda z, w: torch.linalg.svdvals(z),
    "eigenvalues": lambda z, w: torch.linalg.eigvals(z.real[:, :3]).abs().sort().values,
    "fft": lambda z, w: torch.fft.ifft(torch.fft.fft(z.real) * w),
    "rfft": lambda z, w: torch.fft.irfft(torch.fft.rfft(z.imag) * w[:, :3], n=4),
    "fft2": lambda z, w: torch.fft.fftshift(torch.fft.fft2(z)).abs(),
    "stft": lambda z, w: spectrogram(z),
    "istft": lambda z, w: torch.istft(spectrogram(z) * 2, 16, window=window(z)),
    "constant": lambda z, w: z * torch.tensor([1j, 2, 3, 4]),
    "nothing": lambda z, w: (z[:0] * 2, z[:0].sum(), z[:0].exp()),
}


class Trained(torch.nn.Module):
    """The gradients of a function of two complex matrices, by their parts."""

    def __init__(self, function, parts):
        super().__init__()
        self.function = function
        self.parts = torch.nn.ParameterList(part.clone() for part in parts)

    def forward(self):
        a, b, c, d = self.parts
        found = self.function(torch.complex(a, b), torch.complex(c, d))
        loss = 0
        for x in tree_leaves(pairs(found)):
            if x.numel():
                loss = loss + (x * torch.linspace(0.5, 1.5, x.numel()).view(x.shape)).sum()
        return poptorch.identity_loss(loss, "none")


def inference(function, *arguments, options=None):
    model = poptorch.inferenceModel(Applied(function), options or quiet_options())
    found = model(*arguments)
    model.destroy()
    return found


def pairs(tree):
    """A tree with pairs in the place of complex numbers."""
    return tree_map_only(
        torch.Tensor, lambda x: torch.view_as_real(x.resolve_conj()) if x.is_complex() else x, tree)


def test_values(seed):
    z, w = complexes(3, 4), complexes(3, 4)
    with Cases() as cases:
        for name, function in FUNCTIONS.items():
            with cases.case(name):
                exact = function(z.to(torch.complex128), w.to(torch.complex128))
                ours, eager = inference(function, z, w), function(z, w)
                for one, other in zip(*map(tree_leaves, (ours, eager)), strict=True):
                    assert (one.dtype, one.shape) == (other.dtype, other.shape)
                check_narrow(pairs(ours), [pairs(eager)], pairs(exact))


def test_gradients(seed):
    parts = [torch.randn(3, 4) for _ in range(4)]
    with Cases() as cases:
        for name, function in FUNCTIONS.items():
            if name in ("eigenvalues", "values", "nothing", "to reals"):
                continue
            with cases.case(name):
                module, eager = Trained(function, parts), Trained(function, parts)
                with testing.keep_gradients():
                    model = poptorch.trainingModel(module, quiet_options())
                    model()
                    found = testing.gradients(model)
                model.destroy()
                eager().backward()
                for i, part in enumerate(eager.parts):
                    if part.grad is not None:
                        torch.testing.assert_close(found[f"parts.{i}"], part.grad,
                                                   rtol=1e-4, atol=1e-4)


def test_which_operations_are_native():
    """Arithmetic and products need none of PyTorch's operators."""
    z, w = complexes(3, 4), complexes(4, 3)
    native = {
        "arithmetic": lambda z, w: (z * z.conj() + 2j - z / 3).real,
        "parts": lambda z, w: torch.polar(z.real, z.imag) * torch.complex(z.imag, z.real),
        "angle": lambda z, w: z.angle(), "magnitude": lambda z, w: z.abs(),
        "product": lambda z, w: z @ w, "sum": lambda z, w: z.t()[1:].sum(0)}
    for name, function in native.items():
        model = poptorch.inferenceModel(Applied(function), quiet_options())
        model.compile(z, w)
        assert "aten {" not in model.ir("translate") and " aten " not in model.ir("translate"), name


def test_complex128_becomes_complex64():
    z = complexes(2, 3).to(torch.complex128)
    found = inference(lambda z: (z * 2, z.real), z)
    assert [x.dtype for x in found] == [torch.complex64, torch.float32]
    assert torch.equal(found[0], (z * 2).to(torch.complex64))
    words = re.escape("[inputs.0] the value 1e+300 does not fit into")
    with pytest.raises(poptorch.Error, match=words):
        inference(lambda z: z * 2, z + 1e300)
    with testing.wide():
        wide = inference(lambda z: torch.fft.fft(z) * z, z)
    assert wide.dtype is torch.complex128
    torch.testing.assert_close(wide, torch.fft.fft(z) * z, rtol=1e-12, atol=1e-12)


def test_batches_and_arguments_without_dimensions():
    z, scale = complexes(8, 3), torch.tensor(2j)
    options = quiet_options(deviceIterations=2, replicationFactor=2)
    found = inference(lambda z: (z * 2, z.sum()), z, options=options)
    torch.testing.assert_close(found[0], z * 2)
    torch.testing.assert_close(found[1], z.view(4, 2, 3).sum((1, 2)))
    assert inference(lambda x: x * 2, scale) == 4j
    for laid in (z.t(), z.conj(), z[:, 1:], z[::2], z.requires_grad_()):
        assert torch.equal(inference(lambda x: x * 2, laid), (laid * 2).detach())


def test_arguments_and_buffers_that_forward_changes():
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(3, dtype=torch.complex64))

        def forward(self, z):
            self.total += z
            z.mul_(1j)
            return self.total * 1

    module, z = Counting(), complexes(3)
    first, total = z.clone(), z + z * 1j
    model = poptorch.inferenceModel(module, quiet_options())
    model(z)
    assert torch.equal(z, first * 1j)
    torch.testing.assert_close(model(z), total)
    model.copyWeightsToHost()
    torch.testing.assert_close(module.total, total)


def test_loops():
    z = complexes(3)
    found = inference(lambda z: poptorch.for_loop(3, lambda x: [x * 1j + 1], [z])[0], z)
    expected = z
    for _ in range(3):
        expected = expected * 1j + 1
    torch.testing.assert_close(found, expected)


class Turned(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.turns = torch.nn.Parameter(torch.polar(torch.ones(4), torch.arange(4.0)))

    def forward(self, x):
        return torch.fft.fft(x) * self.turns


def test_files(tmp_path):
    module, x, path = Turned(), torch.randn(2, 4), tmp_path / "turned.poptorch"
    poptorch.inferenceModel(module, quiet_options()).compileAndExport(str(path), x)
    model = poptorch.inferenceModel(module, quiet_options())
    model.loadExecutable(str(path))
    torch.testing.assert_close(model(x), module(x).detach())

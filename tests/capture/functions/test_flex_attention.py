"""``flex_attention`` with functions for scores and masks, compared with PyTorch's own."""

import copy
import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch._higher_order_ops.flex_attention import math_attention
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

import poptorch
from tests.fuzz.judge import budget
from tests.helpers import check_narrow, check_wide, quiet_options, to_dtype

DEBUG = "torch.nn.attention.flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"
OPTIONS = {"outputMode": poptorch.OutputMode.All}


@pytest.fixture(autouse=True)
def eager_as_written(monkeypatch):
    """Eager calls the functions as they are, without torch.compile."""
    monkeypatch.setattr(DEBUG, True)


# Of a module with the parameters ``head``, ``table`` and ``far``.
SCORES = {
    "none": lambda m: None,
    "alibi": lambda m: lambda s, b, h, i, j: s + m.head[h] * (j - i),
    "soft cap": lambda m: lambda s, b, h, i, j: 2.0 * torch.tanh(s / 2.0),
    "table": lambda m: lambda s, b, h, i, j: s + m.table[h, i, j],
    "nested table": lambda m: lambda s, b, h, i, j: s * m.table[h][i][j],
    "distance": lambda m: lambda s, b, h, i, j: s + m.far[(i - j).abs()],
    "choice": lambda m: lambda s, b, h, i, j: torch.where((i + j) % 2 == b % 2, s, m.head[h] - s),
}
# Of the numbers of documents, int64 [batch, length]; keys are of documents, too.
MASKS = {
    "none": None,
    "causal": lambda d: lambda b, h, i, j: i >= j,
    "window": lambda d: lambda b, h, i, j: (i - j).abs() <= 1 + h,
    "documents": lambda d: lambda b, h, i, j: d[b, i] == d[b, j],
    "nothing": lambda d: lambda b, h, i, j: i > 1,
}


@dataclass(frozen=True)
class Case:
    """Of an example: sizes, functions by name, and the seed of the data."""

    batch: int
    heads: int
    group: int
    length: int
    keys: int
    size: int
    value_size: int
    score: str
    mask: str
    seed: int

    def tensors(self):
        torch.manual_seed(self.seed)
        longest = max(self.length, self.keys)
        q = torch.randn(self.batch, self.length, self.heads * self.group, self.size)
        k = torch.randn(self.batch, self.heads, self.keys, self.size)
        v = torch.randn(self.batch, self.heads, self.keys, self.value_size)
        return q.transpose(1, 2), k, v, torch.randint(0, 3, (self.batch, longest))

    def module(self):
        torch.manual_seed(self.seed + 1)
        return Attention(self)


class Attention(nn.Module):
    def __init__(self, case):
        super().__init__()
        self.case, heads = case, case.heads * case.group
        self.head = nn.Parameter(torch.randn(heads))
        self.table = nn.Parameter(torch.randn(heads, case.length, case.keys))
        self.far = nn.Parameter(torch.randn(max(case.length, case.keys)))
        self.weights = nn.ParameterList(
            torch.randn(n) for n in (case.size, case.size, case.value_size))

    def mask(self, documents):
        case = self.case
        return None if MASKS[case.mask] is None else create_block_mask(
            MASKS[case.mask](documents), case.batch, case.heads * case.group, case.length,
            case.keys, device="cpu")

    def forward(self, q, k, v, documents):
        q, k, v = (x * weight for x, weight in zip((q, k, v), self.weights))
        score, mask = SCORES[self.case.score](self), self.mask(documents)
        out, lse = self.attend(q, k, v, score, mask)
        unused = sum(p.sum() * 0 for p in (self.head, self.table, self.far))
        sees = lse > -torch.inf
        lse = lse.masked_fill(~sees, 0.0)
        return out, lse, sees, poptorch.identity_loss(out.sin().sum() + lse.sum() + unused, "none")

    def attend(self, q, k, v, score, mask):
        out, aux = flex_attention(q, k, v, score_mod=score, block_mask=mask,
                                  enable_gqa=self.case.group > 1, return_aux=AuxRequest(lse=True))
        return out, aux.lse


class Eager(Attention):
    """By PyTorch's formula: its flex_attention has no gradient on the CPU."""

    def attend(self, q, k, v, score, mask):
        if self.case.score == "nested table":  # PyTorch has no gradient for it
            score = lambda s, b, h, i, j: s * self.table[h, i, j]  # noqa: E731
        score = score or (lambda s, b, h, i, j: s)
        mask = mask.as_tuple() if mask else (lambda b, h, i, j: (i >= 0) & (j >= 0),)
        out, lse, _ = math_attention(q, k, v, score, mask, 1 / math.sqrt(q.shape[-1]), {})
        return out, lse * math.log(2.0)


@st.composite
def cases(draw):
    sizes = [draw(st.integers(1, most)) for most in (2, 2, 2, 6, 6, 4, 4)]
    mask = draw(st.sampled_from(list(MASKS)))
    return Case(*sizes, draw(st.sampled_from(list(SCORES))), mask,
                draw(st.integers(0, 2**31)))


def gradients(module, optimizer):
    return {name: optimizer.state[p]["momentum_buffer"] for name, p in module.named_parameters()}


def compiled(module, tensors):
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.5)
    model = poptorch.trainingModel(module, quiet_options(**OPTIONS), optimizer)
    *found, _ = model(*tensors)
    model.destroy()
    return found, gradients(module, optimizer)


def eager(module, tensors):
    module = copy.deepcopy(module)
    module.__class__ = Eager
    *found, loss = module(*tensors)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.5)
    loss.backward()
    optimizer.step()
    return found, gradients(module, optimizer)


@budget(8)
@given(cases())
def test_results_and_gradients(case):
    module, tensors = case.module(), case.tensors()
    wide = to_dtype(tensors, torch.float64)
    reference = eager(module.double(), wide)
    with poptorch.testing.wide():
        check_wide(compiled(copy.deepcopy(module), wide), reference)
    moved = [(tensors[0] * (1 + part * 2**-23), *tensors[1:]) for part in (0, 1, -1)]
    runs = [eager(module.float(), inputs) for inputs in moved]
    check_narrow(compiled(module.float(), tensors), runs, reference)


def check_inference(forward, *tensors):
    """Values, and their memory layout."""
    module = nn.Module()
    module.forward = forward
    expected = module(*tensors)
    found = poptorch.inferenceModel(module, quiet_options())(*tensors)
    for ours, eager in zip(found, expected):
        assert ours.stride() == eager.stride() and ours.dtype is eager.dtype
        torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-6)


def causal(b, h, i, j):
    return i >= j


def test_forms_in_inference():
    q, k, v = torch.randn(3, 2, 4, 6, 5)
    mask = create_block_mask(causal, None, None, 6, 6, device="cpu")
    check_inference(lambda q, k, v: (flex_attention(q, k, v, scale=0.2),), q, k, v)
    check_inference(lambda q, k, v: (flex_attention(q, k, v, block_mask=mask),), q, k, v)
    check_inference(lambda q, k, v: flex_attention(
        q, k, v, block_mask=mask, return_aux=AuxRequest(lse=True))[1][:1], q, k, v)
    check_inference(lambda q, k, v: (flex_attention(
        q, k, v, block_mask=create_block_mask(causal, 2, None, 6, 6, device="cpu")),),
        q, k[:1], v[:1, ..., :3])
    check_inference(lambda q, k, v: (flex_attention(*(
        x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2),), q, k, v)
    check_inference(lambda *args: (flex_attention(*args, enable_gqa=True),), q, k[:, :2], v[:, :2])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bits(dtype):
    q, k, v = torch.randn(3, 2, 4, 6, 8).to(dtype)
    module = nn.Module()
    module.forward = lambda q, k, v: flex_attention(q, k, v)
    found = poptorch.inferenceModel(module, quiet_options())(q, k, v)
    wide = module(q.double(), k.double(), v.double())
    check_narrow([found], [[module(q, k, v)]], [wide])


def test_autocast_and_compiled_functions():
    attention = torch.compile(flex_attention, backend="eager")

    def forward(q, k, v):
        with torch.autocast("cpu", torch.bfloat16):
            return attention(q, k, v)

    q, k, v = torch.randn(3, 2, 4, 6, 8)
    module = nn.Module()
    module.forward = forward
    found = poptorch.inferenceModel(module, quiet_options())(q, k, v)
    assert found.dtype is torch.bfloat16
    eager = flex_attention(*(x.bfloat16() for x in (q, k, v)))
    check_narrow([found], [[eager]], [flex_attention(q.double(), k.double(), v.double())])


def test_exported_program(monkeypatch):
    class Biased(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("slopes", torch.randn(4))

        def forward(self, q, k, v):
            return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j:
                                  s + self.slopes[h] * (i - j))

    module, tensors = Biased(), tuple(torch.randn(3, 2, 4, 6, 8))
    with monkeypatch.context() as patch:
        patch.setattr(DEBUG, False)
        program = torch.export.export(module, tensors)
    found = poptorch.inferenceModel(program, quiet_options())(*tensors)
    torch.testing.assert_close(found, module(*tensors), rtol=1e-5, atol=1e-6)


def test_nothing_asks_for_a_compiler(monkeypatch):
    """Eager warns and compiles the functions; warnings are errors here."""
    monkeypatch.setattr(DEBUG, False)
    monkeypatch.setattr("torch.nn.attention.flex_attention._WARNINGS_SHOWN", set())
    module, q = nn.Module(), torch.randn(1, 2, 3, 4)
    module.forward = lambda q: flex_attention(q, q, q)
    found = poptorch.inferenceModel(module, quiet_options())(q)
    expected = torch.nn.functional.scaled_dot_product_attention(q, q, q)
    torch.testing.assert_close(found, expected)


def test_choice_of_python_is_refused():
    q = torch.randn(1, 1, 2, 2)
    module = nn.Module()
    module.forward = lambda q: flex_attention(
        q, q, q, score_mod=lambda s, b, h, i, j: s if i > j else -s)
    with pytest.raises(poptorch.Error, match="attempting to use a Tensor in some data-dependent"):
        poptorch.inferenceModel(module, quiet_options())(q)


def test_mask_as_argument_is_refused():
    module = nn.Module()
    module.forward = lambda q, mask: flex_attention(q, q, q, block_mask=mask)
    mask = create_block_mask(causal, None, None, 2, 2, device="cpu")
    with pytest.raises(poptorch.Error, match=(
            r"\[arguments\] mask is a BlockMask, whose mask_mod is Python code\. Keep it as an "
            r"attribute of the module, or call create_block_mask in forward; tensors that mask_mod "
            r"reads may be arguments\.")):
        poptorch.inferenceModel(module, quiet_options())(torch.randn(1, 1, 2, 2), mask)

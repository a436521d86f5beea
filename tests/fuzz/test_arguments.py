"""Arguments of any structure through models that give them back, for every way to cut a batch."""

import collections
import dataclasses
import math
from typing import Any

import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.utils import _pytree as pytree

import poptorch
from tests.fuzz.judge import attempt, budget
from tests.helpers import quiet_options

MODES = poptorch.OutputMode
Pair = collections.namedtuple("Pair", ["first", "second"])


@dataclasses.dataclass
class Record:
    x: Any
    note: Any = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Any


for _kind in (Record, Frozen):
    pytree.register_dataclass(_kind)

# What the device makes of a dtype; None: it has no such type.
DTYPES = {
    **{dtype: dtype for dtype in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32,
                                  torch.float16, torch.bfloat16, torch.float32)},
    **{dtype: torch.int32 for dtype in (torch.int64, torch.uint16, torch.uint32, torch.uint64)},
    torch.float64: torch.float32, torch.complex64: torch.complex64,
    torch.complex128: torch.complex64, torch.float8_e4m3fn: None,
}


@dataclasses.dataclass
class Cut:
    """How a call is cut into steps, and which results it keeps."""

    iterations: int
    replicas: int
    mode: poptorch.OutputMode
    period: int

    @property
    def steps(self):
        return self.iterations * self.replicas

    def options(self):
        options = quiet_options(deviceIterations=self.iterations, replicationFactor=self.replicas)
        return options.outputMode(self.mode, self.period)

    def kept(self, tensor):
        """What the call returns of an argument that the model returns as it is."""
        if self.steps == 1:
            return tensor
        rows = tensor.unflatten(0, (self.iterations, self.replicas, len(tensor) // self.steps))
        if self.mode is MODES.Final:
            return rows[-1].flatten(0, 1)
        if self.mode is MODES.Sum:
            if rows.dtype in (torch.uint16, torch.uint32, torch.uint64):
                rows = rows.to(torch.int32)  # PyTorch does not add them, the device narrows them
            return rows.sum(0, dtype=rows.dtype).flatten(0, 1)
        period = self.period if self.mode is MODES.EveryN else 1
        return rows[period - 1::period].flatten(0, 2)


@st.composite
def cuts(draw):
    mode = draw(st.sampled_from([MODES.Default, MODES.All, MODES.Final, MODES.Sum, MODES.EveryN]))
    iterations = draw(st.sampled_from([1, 1, 2, 3, 4]))
    divisors = [n for n in range(1, iterations + 1) if iterations % n == 0]
    period = draw(st.sampled_from(divisors)) if mode is MODES.EveryN else 1
    return Cut(iterations, draw(st.sampled_from([1, 1, 2, 4])), mode, period)


@st.composite
def tensors(draw, rows=None):
    """A small tensor of any dtype, of strange memory; its first size is from ``rows``, if given."""
    sizes = draw(st.lists(st.sampled_from([0, 1, 2, 3]), max_size=3))
    if rows is not None:
        sizes = [rows * draw(st.sampled_from([0, 1, 1, 2])), *sizes]
    dtype = draw(st.sampled_from(list(DTYPES)))
    numbers = torch.arange(math.prod(sizes)).remainder(7).reshape(sizes)
    tensor = numbers.to(torch.float32).to(dtype)
    form = draw(st.integers(0, 6))
    if form == 1 and tensor.dim() > 1:
        tensor = tensor.transpose(-1, -2).contiguous().transpose(-1, -2)
    elif form == 2 and sizes:
        tensor = tensor.reshape(*sizes, 1).expand(*sizes, 2)[..., 0]
    elif form == 3 and sizes and sizes[0]:
        tensor = tensor[:1].expand(sizes)
    elif form == 4 and dtype in (torch.float32, torch.float64):
        tensor = tensor.requires_grad_()
    elif form == 5 and dtype is torch.int64 and tensor.numel():
        tensor = tensor + 2**40
    elif form == 6 and dtype is torch.float32 and len(sizes) == 2:
        tensor = tensor.to_sparse()
    return tensor


constants = st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.floats(),
                      st.text(max_size=3), st.sampled_from([MODES.All, torch.float32, 2**80, int]))


def structures(rows):
    leaves = st.one_of(tensors(rows), tensors(rows), constants)
    return st.recursive(leaves, lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.sampled_from(["a", "b", "keys", "", 3]), inner, max_size=3),
        st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2).map(
            collections.OrderedDict),
        st.builds(Pair, inner, inner), st.builds(Record, inner, constants),
        st.builds(Frozen, inner)), max_leaves=6)


class Echo(torch.nn.Module):
    """Gives back what it gets, as it is or as a new tensor."""

    def __init__(self, renew):
        super().__init__()
        self.renew = renew

    def forward(self, *args, **kwargs):
        if not self.renew:
            return args, kwargs
        return pytree.tree_map_only(torch.Tensor, torch.clone, (args, kwargs))


def leaves_of(tree):
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def is_refused_rightly(tensor, steps):
    """Whether an argument is one that no program takes."""
    if tensor.layout is not torch.strided or DTYPES[tensor.dtype] is None:
        return True
    if steps > 1 and (tensor.dim() == 0 or len(tensor) % steps):
        return True
    return tensor.dtype is torch.int64 and tensor.numel() > 0 and int(tensor.max()) > 2**31


def check_equal(ours, expected, is_first=True):
    """Two structures are of the same classes and hold the same."""
    if isinstance(expected, torch.Tensor):
        expected = expected.detach().to(DTYPES[expected.dtype])
        assert ours.dtype is expected.dtype and ours.shape == expected.shape
        assert torch.equal(torch.Tensor.detach(ours).nan_to_num(), expected.nan_to_num())
        return
    assert type(ours) is type(expected)
    if isinstance(expected, dict):
        # Keys come back in the order of the first call; that of later ones is free.
        assert list(ours) == list(expected) if is_first else ours.keys() == expected.keys()
        ours, expected = [ours[key] for key in expected], list(expected.values())
    if dataclasses.is_dataclass(expected) and not isinstance(expected, type):
        check_equal(vars(ours), vars(expected), is_first)
    elif isinstance(expected, (list, tuple)):
        assert len(ours) == len(expected)
        for part, whole in zip(ours, expected):
            check_equal(part, whole, is_first)
    else:
        assert repr(ours) == repr(expected)  # which tells 0.0 from -0.0


@st.composite
def inference_calls(draw):
    cut = draw(cuts())
    rows = cut.steps if draw(st.integers(0, 9)) else None
    args = draw(st.lists(structures(rows), max_size=2))
    kwargs = draw(st.dictionaries(st.sampled_from(["x", "self_", "args"]), structures(rows),
                                  max_size=2))
    return cut, args, kwargs, rows


@budget(60)
@given(inference_calls(), st.booleans(), st.data())
def test_arguments_come_back(call, renew, data):
    cut, args, kwargs, rows = call
    model = poptorch.inferenceModel(Echo(renew), cut.options())
    result, error = attempt(model, *args, **kwargs)
    given = leaves_of((args, kwargs))
    is_bad = any(is_refused_rightly(tensor, cut.steps) for tensor in given)
    if error is not None:
        assert is_bad, f"refused: {error}"
        return
    assert not is_bad
    check_equal(result, pytree.tree_map_only(torch.Tensor, cut.kept, (tuple(args), kwargs)))
    # A second call takes what is like the first, and nothing else.
    other = data.draw(structures(rows))
    position = data.draw(st.integers(0, len(args)))
    changed = [*args[:position], other, *args[position + 1:]]
    result, error = attempt(model, *changed, **kwargs)
    if error is None:
        expected = pytree.tree_map_only(torch.Tensor, cut.kept, (tuple(changed), kwargs))
        check_equal(result, expected, is_first=False)


class Loss(torch.nn.Module):
    """A loss and the rows it is made from; the gradient of the weight is the sum of the rows."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, rows):
        return rows, poptorch.identity_loss((rows * self.weight).sum(), reduction="none")


@budget(25)
@given(cuts(), st.sampled_from([1, 1, 2, 3]), st.integers(0, 6), st.booleans())
def test_training_cuts(cut, accumulation, rows, is_sum):
    assume(rows > 0)
    kind = poptorch.ReductionType.Sum if is_sum else poptorch.ReductionType.Mean
    options = cut.options()
    options.Training.gradientAccumulation(accumulation)
    options.Training.accumulationAndReplicationReductionType(kind)
    net = Loss()
    model = poptorch.trainingModel(net, options, torch.optim.SGD(net.parameters(), lr=0.25))
    batch = torch.randint(-4, 5, (rows, 2)).float()
    result, error = attempt(model, batch)
    micro_batches = cut.steps * accumulation
    if rows % micro_batches:
        assert isinstance(error, poptorch.Error) and str(micro_batches) in str(error)
        return
    assert error is None
    total = batch.sum(0) / (1 if is_sum else cut.replicas * accumulation)
    assert torch.allclose(net.weight.detach(), 1 - 0.25 * total, rtol=1e-5, atol=1e-5)
    assert result[0].shape[1:] == batch.shape[1:]

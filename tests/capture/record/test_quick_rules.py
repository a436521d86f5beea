"""Kernels for tensors without data, against eager: random operands of random memory layouts."""

import operator
import random

import pytest
import torch

from poptorch._base.pytree.structure import map_only
from poptorch._base.torch_private import fake_tensors
from poptorch._base.torch_private import tracing as private
from poptorch._capture.record import quick_rules

aten = torch.ops.aten
DTYPES = [*[torch.float32] * 4, torch.float16, torch.bfloat16, torch.float64, torch.int64,
          torch.int32, torch.uint8, torch.bool]
FLOATS = [torch.float32, torch.float16, torch.bfloat16]


class Draw:
    """Draws operands."""

    def __init__(self, rng: random.Random):
        self.rng = rng

    def sizes(self, low=1, high=4):
        choices = [0, 1, 1, 2, 3, 4] if self.rng.random() < 0.5 else [2, 3, 4]
        return [self.rng.choice(choices) for _ in range(self.rng.randint(low, high))]

    def tensor(self, sizes, dtype=None):
        """A permuted, stepped, offset, expanded or unfolded tensor of these sizes."""
        rng, rank = self.rng, len(sizes)
        order = list(range(rank))
        if rng.random() < 0.5:
            rng.shuffle(order)
        wide = [size * rng.choice([1, 2]) if rng.random() < 0.3 else size for size in sizes]
        made = torch.zeros([wide[dim] for dim in order], dtype=dtype or rng.choice(DTYPES))
        made = made.permute([order.index(dim) for dim in range(rank)])
        for dim, size in enumerate(sizes):
            if made.shape[dim] != size:
                part = slice(None, None, 2) if rng.random() < 0.5 else slice(size, None)
                made = made[(slice(None),) * dim + (part,)]
        if rank and rng.random() < 0.2:
            dim = rng.randrange(rank)
            made = made.narrow(dim, 0, min(1, sizes[dim])).expand(sizes)
        if rank > 1 and rng.random() < 0.2:
            steps, (dim, other) = list(made.stride()), rng.sample(range(rank), 2)
            steps[dim] = steps[other]  # as the windows of a row
            memory = torch.zeros(1 + sum(map(operator.mul, steps, sizes)), dtype=made.dtype)
            made = memory.as_strided(sizes, steps)
        return made

    def dim(self, x):
        return self.rng.randint(-x.dim(), x.dim() - 1)

    def dims(self, x):
        return self.rng.sample(range(x.dim()), self.rng.randint(1, x.dim()))

    def any(self, low=1, high=4):
        return self.tensor(self.sizes(low, high))

    def matrices(self, *batch):
        """Operands of a product, and the sizes of its result."""
        rows, depth, columns = (self.rng.choice([0, 1, 2, 3]) for _ in range(3))
        dtype = self.rng.choice(FLOATS)
        return (self.tensor([*batch, rows, depth], dtype),
                self.tensor([*batch, depth, columns], dtype), [*batch, rows, columns])

    def broadcast(self, sizes):
        sizes = [1 if self.rng.random() < 0.25 else size for size in sizes]
        return sizes[self.rng.choice([0, 0, 1]):]


def _view(d):
    x = d.any()
    sizes, merged = list(x.shape), x.shape[:2].numel()
    return (x, d.rng.choice([[-1], [x.numel()], [*sizes, 1], [1, *sizes], [sizes[0], -1],
                             [merged, *sizes[2:]]])), {}


def _expand(d):
    x = d.any(0)
    sizes = [d.rng.choice([-1, 3, 1]) if size == 1 else d.rng.choice([-1, size])
             for size in x.shape]
    return (x, [2] * d.rng.choice([0, 1]) + sizes), {}


def _slice(d):
    x = d.any()
    begin, end = d.rng.choice([None, 0, 1, -1, 2]), d.rng.choice([None, 1, 3, -1, 2**62])
    return (x, d.dim(x), begin, end, d.rng.choice([1, 1, 2])), {}


def _cat(d):
    x = d.any()
    dim = d.dim(x)
    others = [list(x.shape) for _ in range(d.rng.randint(0, 2))]
    for sizes in others:
        sizes[dim] = d.rng.choice([0, 1, 2])
    return ([x, *map(d.tensor, others)], dim), {}


def _stack(d):
    x = d.any(0)
    return ([x, d.tensor(x.shape)], d.rng.randint(0, x.dim())), {}


def _split_with_sizes(d):
    x = d.any()
    dim = d.dim(x)
    first = d.rng.randint(0, x.shape[dim])
    return (x, [first, x.shape[dim] - first], dim), {}


def _added(batch):
    def drawn(d):
        a, b, sizes = d.matrices(*batch)
        return (d.tensor(d.broadcast(sizes), a.dtype), a, b), {}
    return drawn


def _with_dim(d, *others):
    x = d.any()
    return (x, d.dim(x), *others), {}


def _reduced(d):
    return (d.any(0),), d.rng.choice([{}, {"dtype": torch.float32}])


def _cumsum(d):
    (x, dim), _ = _with_dim(d)
    return (x, dim), d.rng.choice([{}, {"dtype": torch.float64}])


def _permute(d):
    x = d.any()
    return (x, d.rng.sample(range(x.dim()), x.dim())), {}


def _unsqueeze(d):
    x = d.any(0)
    return (x, d.rng.randint(-x.dim() - 1, x.dim())), {}


def _diagonal(d):
    x = d.any(2)
    return (x, d.rng.choice([0, 1, -1]), *d.rng.sample(range(x.dim()), 2)), {}


def _squeeze_dims(d):
    x = d.any()
    return (x, d.dims(x)), {}


def _zeros_of_other_memory(d):
    x = d.any(0)
    return (x, d.tensor(x.shape)), {}


def _transpose(d):
    x = d.any()
    return (x, d.dim(x), d.dim(x)), {}


FORMATS = [{}, {"memory_format": torch.contiguous_format}, {"memory_format": torch.preserve_format},
           {"memory_format": torch.channels_last}]
OPERANDS = {
    aten.view.default: _view,
    aten._unsafe_view.default: _view,
    aten.t.default: lambda d: ((d.any(0, 3),), {}),
    aten.transpose.int: _transpose,
    aten.permute.default: _permute,
    aten.expand.default: _expand,
    aten.unsqueeze.default: _unsqueeze,
    aten.squeeze.default: lambda d: ((d.any(0),), {}),
    aten.squeeze.dim: _with_dim,
    aten.squeeze.dims: _squeeze_dims,
    aten.select.int: lambda d: _with_dim(d, d.rng.randint(-2, 2)),
    aten.slice.Tensor: _slice,
    aten.diagonal.default: _diagonal,
    aten.unfold.default: lambda d: _with_dim(d, d.rng.choice([0, 1, 2]), d.rng.choice([1, 2])),
    aten.split.Tensor: lambda d: ((d.any(), d.rng.choice([1, 2]), 0), {}),
    aten.split_with_sizes.default: _split_with_sizes,
    aten.unbind.int: _with_dim,
    aten.clone.default: lambda d: ((d.any(0),), d.rng.choice(FORMATS)),
    aten._to_copy.default: lambda d: (
        (d.any(0),), {"dtype": d.rng.choice(DTYPES), **d.rng.choice(FORMATS)}),
    aten.cat.default: _cat,
    aten.stack.default: _stack,
    aten.mm.default: lambda d: (d.matrices()[:2], {}),
    aten.bmm.default: lambda d: (d.matrices(d.rng.choice([0, 1, 2]))[:2], {}),
    aten.addmm.default: _added([]),
    aten.baddbmm.default: _added([2]),
    aten.sum.default: _reduced,
    aten.mean.default: _reduced,
    aten.cumsum.default: _cumsum,
    aten._new_zeros_with_same_feature_meta.default: _zeros_of_other_memory,
}


def _found(call, args):
    """What each result is and where it lies, how large its memory is, and whether it is that of an
    operand; or the type of what is raised."""
    try:
        results = call(args)
    except Exception as error:  # noqa: BLE001  (any that torch raises)
        # Since torch 2.15 operators raise one of its subclasses where the rules raise itself.
        return RuntimeError if isinstance(error, RuntimeError) else type(error)
    if results is NotImplemented:
        return results
    results = results if isinstance(results, (tuple, list)) else [results]
    operands = []
    map_only(torch.Tensor, operands.append, args)
    taken = {x.untyped_storage()._cdata for x in operands}
    return [(tuple(x.shape), x.stride(), x.storage_offset(), x.dtype, x.untyped_storage().nbytes(),
             x.untyped_storage()._cdata in taken) for x in results]


def test_each_operation_is_drawn():
    assert set(OPERANDS) == quick_rules.KERNEL_SUFFICES


@pytest.mark.sampled
@pytest.mark.parametrize("func", sorted(OPERANDS, key=str), ids=str)
def test_results_are_those_of_eager(func, seed):
    draw, mode = Draw(random.Random(seed)), fake_tensors.new_fake_mode()
    given = [_checked(mode, func, *OPERANDS[func](draw)) for _ in range(60)]
    assert sum(given) > 20  # most operands are ones that eager takes


def _without_ones(found):
    """Without the strides of dimensions of one element, which no element lies by."""
    if not isinstance(found, list):
        return found
    return [(sizes, tuple(s for size, s in zip(sizes, strides) if size > 1), *others)
            for sizes, strides, *others in found]


def _checked(mode, func, args, kwargs, of=lambda found: found) -> bool:
    """Compares with eager what ``of`` gives; whether there is a result."""
    expected = _found(lambda args: func(*args, **kwargs), args)
    fake = map_only(torch.Tensor, lambda x: fake_tensors.fake_like(mode, x), args)
    found = _found(lambda args: quick_rules.result(mode, func, args, kwargs), fake)
    shown = map_only(torch.Tensor, lambda x: (x.dtype, x.shape, x.stride()), args)
    assert found is NotImplemented or of(found) == of(expected), (func, shown, kwargs)
    return isinstance(found, list)


def test_what_needs_torchs_rules():
    mode = fake_tensors.new_fake_mode()
    x, real = fake_tensors.new_fake(mode, (2, 3), (3, 1), torch.float32), torch.zeros(2, 3)
    with mode:
        known = torch.tensor(1.0)

    def is_found(func, *args, **kwargs):
        return quick_rules.result(mode, func, args, kwargs) is not NotImplemented

    assert is_found(aten.cat.default, [x, x], 0)
    assert not is_found(aten.cat.default, [x, real], 0)
    assert not is_found(aten.clone.default, known)  # its value may be asked for
    assert is_found(aten._to_copy.default, x, dtype=torch.float16)
    assert not is_found(aten._to_copy.default, x, device=torch.device("cpu"))
    assert is_found(aten.relu.default, x) and not is_found(aten.relu_.default, x)
    assert not is_found(aten.relu.default, x.t()) and is_found(aten.add.Tensor, x, x, alpha=2)
    assert not is_found(aten.add.Tensor, x, x, alpha=known)
    assert not is_found(aten.relu.default, x, memory_format=torch.contiguous_format)
    assert not is_found(aten.add.Tensor, x, fake_tensors.new_fake(mode, (2,), (1,), torch.float32))
    assert not is_found(aten.bernoulli.default, x)


def _elementwise_overloads():
    """All that torch has, apart from those whose arguments would need a meaning."""
    found = []
    for name in sorted(set(dir(aten)) | {schema.name.removeprefix("aten::")
                                         for schema in torch._C._jit_get_all_schemas()
                                         if schema.name.startswith("aten::")}):
        packet = getattr(aten, name, None)
        if isinstance(packet, torch._ops.OpOverloadPacket):
            found += [op for op in private.overloads_of(packet) if quick_rules._is_elementwise(op)]
    return found


def _argument(d, argument, sizes, dtype):
    """A value of the type that the schema names."""
    kind = str(argument.type)
    if kind == "Tensor" or kind == "Optional[Tensor]" and d.rng.random() < 0.5:
        shape = d.rng.choice([sizes, sizes, sizes, d.broadcast(sizes), []])
        return torch.ones(shape, dtype=dtype if d.rng.random() < 0.8 else d.rng.choice(DTYPES))
    if argument.has_default_value() and d.rng.random() < 0.8 or kind.startswith("Optional"):
        return argument.default_value
    return {"number": d.rng.choice([2, 0.5, True]), "float": 0.5, "int": 1, "bool": True}[kind]


def _choices(d, func):
    """Keywords of an overload."""
    drawn = {"rounding_mode": ["floor", "trunc", None], "approximate": ["none", "tanh"],
             "alpha": [1, 2], "value": [1, 2]}
    return {x.name: d.rng.choice(drawn[x.name]) for x in func._schema.arguments if x.kwarg_only}


def _elementwise_calls(draw, count, least):
    """Each overload with arguments, so often, of at least so many dimensions."""
    for func in _elementwise_overloads():
        for _ in range(count):
            sizes, dtype = draw.sizes(least), draw.rng.choice(DTYPES)
            try:
                args = [_argument(draw, x, sizes, dtype)
                        for x in func._schema.arguments if not x.kwarg_only]
                kwargs = _choices(draw, func)
            except KeyError:  # a list or a string
                break
            yield func, args, kwargs


def _eager_takes(func, args, kwargs) -> bool:
    return isinstance(_found(lambda args: func(*args, **kwargs), args), list)


@pytest.mark.sampled
def test_elementwise_results_are_those_of_eager(seed):
    draw, mode = Draw(random.Random(seed)), fake_tensors.new_fake_mode()
    overloads = _elementwise_overloads()
    given = {func for func, args, kwargs in _elementwise_calls(draw, 12, 0)
             if _eager_takes(func, args, kwargs) and _checked(mode, func, args, kwargs)}
    assert len(overloads) > 200 and len(given) > 0.7 * len(overloads), set(overloads) - given


def _ones(d, sizes, dtype):
    """Ones that lie as drawn."""
    drawn = d.tensor(sizes, dtype)
    memory = torch.ones(drawn.untyped_storage().nbytes() // dtype.itemsize, dtype=dtype)
    return memory.as_strided(drawn.shape, drawn.stride(), drawn.storage_offset())


def test_elementwise_results_of_operands_that_lie_in_different_orders(seed):
    """Torch's rules without data give other strides than eager has, for some."""
    draw, mode = Draw(random.Random(seed)), fake_tensors.new_fake_mode()
    given, found = set(), 0
    for func, args, kwargs in _elementwise_calls(draw, 4, 2):
        args = map_only(torch.Tensor, lambda x: _ones(draw, list(x.shape), x.dtype), args)
        several = sum(isinstance(x, torch.Tensor) for x in args) > 1
        if several and _eager_takes(func, args, kwargs):
            given.add(func)
            found += _checked(mode, func, args, kwargs, _without_ones)
    assert len(given) > 50 and found > 60, (len(given), found)


def test_a_result_that_lies_as_the_second_operand():
    mode = fake_tensors.new_fake_mode()
    x = fake_tensors.new_fake(mode, (2, 2), (1, 2), torch.float32)
    w = fake_tensors.new_fake(mode, (2,), (1,), torch.float32)
    assert quick_rules.result(mode, aten.logaddexp2.default, (w, x), {}).stride() == (1, 2)
    with mode:
        assert aten.logaddexp2.default(w, x).stride() == (2, 1)  # a new torch may have it right

"""Random programs of views and changes in place, drawn while eager runs them."""

import random

import torch

from poptorch._base.layout import dims_in_memory, lies_on_itself


class Program:
    """Steps that make tensors of earlier ones, or change one of them.

    Attributes:
        inputs: what it is given, of any layout.
        steps: ``(name, function, numbers of the tensors it takes)``; a function that returns None
            changes its first tensor.
        results: numbers of the tensors that it returns.
    """

    def __init__(self, inputs):
        self.inputs = inputs
        self.steps = []
        self.results = []

    def __call__(self, *inputs, log=None):
        """Runs it; what each tensor's memory looks like is appended to ``log``."""
        made = list(inputs)
        for _, function, operands in self.steps:
            result = function(*(made[number] for number in operands))
            if result is not None:
                made.append(result)
        if log is not None:
            log += [(tuple(t.shape), *_places(t)) for t in made]
        return [made[number] for number in self.results]

    def __str__(self):
        lines = [f"t{i} = input {list(t.shape)} {t.stride()} + {t.storage_offset()}"
                 for i, t in enumerate(self.inputs)]
        count = len(lines)
        for name, _, operands in self.steps:
            taken = ", ".join(f"t{number}" for number in operands)
            if name.endswith("_)"):
                lines.append(f"{taken}: {name}")
            else:
                lines.append(f"t{count} = {name} of {taken}")
                count += 1
        return "\n".join([*lines, f"return {self.results}"])


def _places(t) -> tuple:
    """Where the elements of a tensor lie: strides of the dimensions that move, and the start."""
    if t.numel() == 0:
        return ()
    return [step for n, step in zip(t.shape, t.stride()) if n > 1], t.storage_offset()


def draw(rng: random.Random, length: int, grad: bool = False, picks: bool = False) -> Program:
    """A program of about ``length`` steps that eager accepts.

    Args:
        rng: the source of all choices.
        length: how many steps are tried.
        grad: whether the tensors are to have gradients.
        picks: whether elements are taken at places that tensors name; their memory is not used.
    """
    views = _VIEWS if not picks else _WITH_PICKS
    inputs = [_input(rng) for _ in range(2)]
    program = Program(inputs)
    made = [t.clone() * 1 if not grad else t.clone().requires_grad_() * 1 for t in inputs]
    made = [_laid_out_like(new, old) for new, old in zip(made, inputs)] if not grad else made
    for _ in range(length):
        number = rng.choice(range(max(0, len(made) - 5), len(made)) if rng.random() < 0.7
                            else range(len(made)))
        kind = _change if rng.random() < 0.35 else _view if rng.random() < 0.8 else _new
        try:
            step = kind(rng, made, number, views) if kind is _view else kind(rng, made, number)
            if step is None:
                continue
            _, function, operands = step
            result = function(*(made[n] for n in operands))
        except RuntimeError:
            continue  # eager refuses it
        program.steps.append(step)
        if result is not None:
            made.append(result)
    program.results = sorted(rng.sample(range(len(made)), min(4, len(made))))
    return program


def _input(rng) -> torch.Tensor:
    sizes = [rng.choice((1, 2, 3, 4)) for _ in range(rng.choice((1, 2, 2, 3)))]
    dims = list(range(len(sizes)))
    rng.shuffle(dims)
    base = torch.randint(-9, 10, [sizes[d] for d in dims]).double()
    tensor = base.permute([dims.index(d) for d in range(len(dims))])
    if rng.random() < 0.3:  # a part of a larger one
        larger = torch.randint(-9, 10, (sizes[0] + 2, *sizes[1:])).double()
        tensor = larger[1:-1]
    return tensor


def _laid_out_like(new, old):
    memory = torch.zeros(old.untyped_storage().nbytes() // 8, dtype=torch.float64)
    out = torch.empty(0, dtype=torch.float64).set_(
        memory.untyped_storage(), old.storage_offset(), old.size(), old.stride())
    return out.copy_(new)


def _named(name, function, *operands):
    return name, function, operands


def _view(rng, made, number, views):
    t = made[number]
    rank = t.dim()
    name, make = rng.choice(views)
    function = make(rng, t, rng.randrange(rank) if rank else 0) if rank or name in _OF_ANY else None
    return function and _named(f"{name}{function[0]}", function[1], number)


def _pick(rng, t, dim):
    if t.shape[dim] == 0:
        return None
    number = rng.randrange(-t.shape[dim], t.shape[dim])
    return (dim, number), lambda x: x[(slice(None),) * dim + (torch.tensor(number),)]


def _slice(rng, t, dim):
    size = t.shape[dim]
    start = rng.randrange(size + 1)
    end, step = rng.randint(start, size), rng.choice((1, 1, 2))
    index = (slice(None),) * dim + (slice(start, end, step),)
    return index, lambda x: x[index]


def _select(rng, t, dim):
    if t.shape[dim] == 0:
        return None
    at = rng.randrange(t.shape[dim])
    return (dim, at), lambda x: x.select(dim, at)


def _permute(rng, t, dim):
    dims = list(range(t.dim()))
    rng.shuffle(dims)
    return dims, lambda x: x.permute(dims)


def _reshape(rng, t, dim):
    sizes = _other_sizes(rng, t.numel())
    return sizes, lambda x: x.reshape(sizes)


def _other_sizes(rng, count):
    choices = [[count], [1, count], [count, 1]]
    choices += [[n, count // n] for n in (2, 3, 4) if count and count % n == 0]
    return rng.choice(choices)


def _flatten(rng, t, dim):
    return (dim,), lambda x: x.flatten(dim)


def _expand(rng, t, dim):
    sizes = [rng.choice((2, 3)) if n == 1 and rng.random() < 0.5 else n for n in t.shape]
    if rng.random() < 0.3 and len(sizes) < 4:
        sizes = [2, *sizes]
    return sizes, lambda x: x.expand(sizes)


def _part(rng, t, dim):
    count = rng.choice((2, 3))
    split = rng.choice((torch.chunk, torch.tensor_split, torch.split))
    parts = len(split(t, count, dim))
    index = rng.randrange(parts)
    return (split.__name__, count, dim, index), lambda x: split(x, count, dim)[index]


def _unbind(rng, t, dim):
    if t.shape[dim] == 0:
        return None
    index = rng.randrange(t.shape[dim])
    return (dim, index), lambda x: x.unbind(dim)[index]


def _diagonal(rng, t, dim):
    if t.dim() < 2:
        return None
    other = (dim + 1) % t.dim()
    offset = rng.choice((-1, 0, 0, 1))
    return (offset, dim, other), lambda x: x.diagonal(offset, dim, other)


def _unfold(rng, t, dim):
    if t.shape[dim] == 0 or t.dim() > 3:
        return None
    size, step = rng.randint(1, t.shape[dim]), rng.choice((1, 2, 3))
    return (dim, size, step), lambda x: x.unfold(dim, size, step)


def _as_strided(rng, t, dim):
    # Where its memory is changed, autograd gives one gradient or another.
    if _may_lack_memory(t) or t.requires_grad:
        return None
    memory = t.untyped_storage().nbytes() // t.itemsize
    sizes = [rng.randint(1, 3) for _ in range(rng.choice((1, 2)))]
    strides = [rng.choice((1, 1, 2, 3, 4)) for _ in sizes]
    reach = sum((n - 1) * step for n, step in zip(sizes, strides))
    if reach >= memory:
        return None
    offset = rng.randrange(memory - reach)
    return (sizes, strides, offset), lambda x: x.as_strided(sizes, strides, offset)


def _may_lack_memory(t) -> bool:
    """Whether eager's memory of the tensor may be more than what its owner shows."""
    base = t if t._base is None else t._base
    whole = base.untyped_storage().nbytes() // base.itemsize
    return dims_in_memory(base) is None or base.numel() != whole


def _plain(method, *arguments):
    return lambda rng, t, dim: (arguments, lambda x: getattr(x, method)(*arguments))


_VIEWS = [
    ("slice", _slice), ("select", _select), ("permute", _permute), ("reshape", _reshape),
    ("flatten", _flatten), ("expand", _expand), ("part", _part), ("unbind", _unbind),
    ("diagonal", _diagonal), ("unfold", _unfold), ("as_strided", _as_strided),
    ("as_strided", _as_strided), ("unsqueeze", _plain("unsqueeze", 0)),
    ("squeeze", _plain("squeeze")), ("mT", lambda rng, t, dim: (
        (), lambda x: x.mT if x.dim() > 1 else x.view(x.shape))),
    ("ravel", _plain("ravel")), ("contiguous", _plain("contiguous")),
    ("detach", _plain("detach")), ("double", _plain("to", torch.float64)),
    ("real", lambda rng, t, dim: ((), lambda x: x.real)),
    ("movedim", lambda rng, t, dim: ((dim,), lambda x: x.movedim(dim, 0))),
    ("view", lambda rng, t, dim: (
        sizes := _other_sizes(rng, t.numel()), lambda x: x.view(sizes))),
    ("view_as_pairs", lambda rng, t, dim: (
        (), lambda x: x.unflatten(dim, (2, -1))) if t.shape[dim] % 2 == 0 < t.numel() else None),
]
_WITH_PICKS = [row for row in _VIEWS if row[0] != "as_strided"] + [("pick", _pick)] * 8
_OF_ANY = {"reshape", "unsqueeze", "squeeze", "ravel", "contiguous", "detach", "double", "real",
           "expand", "as_strided", "view"}


def _change(rng, made, number):
    t = made[number]
    if lies_on_itself(t.shape, t.stride()) or t.is_leaf and t.requires_grad:
        return None
    is_input = any(t is given for given in made[:2])  # a graph does not change its shape
    if rng.random() < 0.2 and not is_input:
        name, arguments = _of_shape(rng, t)
        return _named(f"({arguments} {name})",
                      lambda x: (getattr(x, name)(*arguments), None)[1], number)
    if rng.random() < 0.5:
        value = float(rng.randint(2, 5))
        name = rng.choice(("add_", "mul_", "fill_", "sub_", "neg_", "zero_"))
        values = () if name in ("neg_", "zero_") else (value,)
        return _named(f"({values} {name})", lambda x: (getattr(x, name)(*values), None)[1], number)
    source = rng.randrange(len(made))
    apart = made[source].untyped_storage()._cdata != t.untyped_storage()._cdata
    if not apart and source != number:
        return None
    name = rng.choice(("copy_", "add_", "sub_"))
    return _named(f"({name})", lambda x, y: (getattr(x, name)(y), None)[1], number, source)


def _of_shape(rng, t):
    """A change of how a tensor looks at its memory: (name, arguments)."""
    rank = t.dim()
    dims = [rng.randrange(-rank, rank) if rank else 0 for _ in range(2)]
    return rng.choice((
        ("squeeze_", ()), ("squeeze_", (dims[0],)), ("t_", ()), ("transpose_", tuple(dims)),
        ("swapaxes_", tuple(dims)), ("swapdims_", tuple(dims)),
        ("unsqueeze_", (rng.randrange(-rank - 1, rank + 1),))))


def _new(rng, made, number):
    name, function = rng.choice((
        ("times 2", lambda x: x * 2), ("clone", torch.clone), ("neg", torch.neg),
        ("contiguous clone", lambda x: x.clone(memory_format=torch.contiguous_format)),
        ("zeros_like", torch.zeros_like), ("plus transposed", lambda x: x + x.mT)))
    if name == "plus transposed" and made[number].dim() < 2:
        return None
    return _named(name, function, number)

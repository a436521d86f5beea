"""Loops and branches, whose bodies are random expressions of what they carry and of tensors from
outside."""

from tests.fuzz.programs.vocabulary.base import dtype_of, operand, row

_UNARY = ("torch.tanh({a})", "torch.sin({a})", "F.relu({a})", "({a} * 0.5)", "{a}.clone()", "-{a}",
          "{a}.reshape(-1).reshape({shape})", "{a}.detach()", "({a} - {a}.mean())",
          "{a}.contiguous().view({shape})")
_UNARY_WITH_DIMS = ("{a}.flip(0)", "{a}.roll(1, 0)", "F.softmax({a}, -1)", "{a}.cumsum(0)",
                    "F.layer_norm({a}, {last})", "{a}.mT.contiguous().mT",
                    "{a}.sort(dim=0, stable=True)[0]",
                    "torch.cat(({a}[1:], {a}[:1]))")
_BINARY = ("({a} + {b})", "({a} * {b})", "({a} - {b} * 0.5)", "({a} * 1).add_({b})",
           "torch.maximum({a}, {b})", "torch.where({a} > {b}, {a}, {b})")


class _Bodies:
    """Draws bodies that carry tensors of one shape and dtype."""

    def __init__(self, d, like: str):
        self.d, self.dtype = d, dtype_of(d, like)
        self.shape = tuple(d.env[like].shape)
        self.read: list[str] = []

    def expression(self, names: list[str], depth: int = 0) -> str:
        """The text of a tensor like the carried ones."""
        d, text = self.d, self.d.rng.choice(names)
        for _ in range(d.rng.randint(0, 3)):
            kinds = _UNARY if len(self.shape) < 2 else (*_UNARY, *_UNARY_WITH_DIMS)
            if d.chance(0.5):
                other = d.rng.choice(names) if d.chance(0.5) else self.operand()
                text = d.rng.choice(_BINARY).format(a=text, b=other)
            else:
                text = d.rng.choice(kinds).format(a=text, shape=self.shape, last=self.shape[-1:])
        if depth == 0 and d.chance(0.1) and self.shape:
            weight = operand(d, (self.shape[-1], self.shape[-1]), self.dtype)
            text = f"F.linear({text}, {weight})"
        if depth < 2 and d.chance(0.12):
            text = f"({text} + {self.inner(names, depth + 1)})"
        return text

    def operand(self) -> str:
        """A tensor from outside of the body."""
        self.read.append(operand(self.d, self.shape, self.dtype))
        return self.read[-1]

    def branches(self, first: str, second: str, names: list[str]) -> list[str]:
        """Two branches that depend on the same tensors: eager has no gradient of those that only
        the other branch reads, a program that is compiled has zeros."""
        read = " + ".join(dict.fromkeys([*names, *self.read]))
        return [f"{text} + 0 * ({read})" for text in (first, second)]

    def inner(self, names: list[str], depth: int) -> str:
        """A loop or a branch inside of a body, of one tensor."""
        new = "cdef"[depth]
        body = self.expression([*names, new], depth)
        start = self.d.rng.choice(names)
        if self.d.chance(0.5):
            return f"poptorch.for_loop({self.d.rng.randint(1, 3)}, lambda {new}: {body}, " \
                   f"[{start}])[0]"
        body, other = self.branches(body, self.expression([new], depth), [*names, new])
        return f"poptorch.cond({self.flag()}, lambda {new}: {body}, [{start}], lambda {new}: " \
               f"{other}, [{start}])[0]"

    def flag(self) -> str:
        """A condition that is known at run time, and that no rounding turns around."""
        return f"{self.d.indices(2, (1,))} > 0"


def _floating(d):
    return d.pick(lambda t: t.is_floating_point() and t.numel() < 500) if d.tensors(
        lambda t: t.is_floating_point() and t.numel() < 500) else d.fresh((2, 3), d.dtype())


@row("loops", 4)
def for_loop(d):
    x = _floating(d)
    bodies = _Bodies(d, x)
    count = d.rng.choice((0, 1, 2, 2, 3, 5))
    if d.chance(0.4):
        d.emit(f"poptorch.for_loop({count}, lambda a: {bodies.expression(['a'])}, [{x}])[0]")
        return
    y = bodies.operand()
    found = [bodies.expression(["a", "b"]) for _ in "ab"]
    if d.chance(0.2):
        found.reverse()
    if d.chance(0.2):
        number = d.indices(3, (1,), d.rng.choice(("I64", "I32")))
        d.emit(f"poptorch.for_loop({count}, lambda i, a, b: [i + 1, {found[0]} * i, {found[1]}], "
               f"[{number}, {x}, {y}])", 3)
        return
    d.emit(f"poptorch.for_loop({count}, lambda a, b: [{found[0]}, {found[1]}], [{x}, {y}])", 2)


@row("loops", 3)
def cond(d):
    x = _floating(d)
    bodies = _Bodies(d, x)
    y = bodies.operand()
    then, other = bodies.branches(bodies.expression(["a"], 1), bodies.expression(["a", "b"], 1),
                                  [x, y])
    d.emit(f"poptorch.cond({bodies.flag()}, lambda a: {then}, [{x}], lambda a, b: {other}, "
           f"[{x}, {y}])[0]")


@row("loops", 3)
def higher_order(d):
    """PyTorch's own operations on functions."""
    x = _floating(d)
    kind = d.rng.choice(("scan", "scan", "map", "while_loop"))
    if kind == "while_loop":
        bodies = _Bodies(d, x)
        rounds = d.indices(4, (1,), d.rng.choice(("I64", "I32")))
        d.emit(f"higher.while_loop({rounds}, lambda a: {bodies.expression(['a'])}, {x})")
        return
    rows = d.fresh((d.rng.randint(1, 4), *d.env[x].shape), dtype_of(d, x))
    bodies = _Bodies(d, x)
    if kind == "map":
        d.emit(f"higher.map(lambda a: {bodies.expression(['a'])}, {rows})")
        return
    found = [bodies.expression(["a", "b"]) for _ in "ab"]
    d.emit(f"higher.scan(lambda a, b: ({found[0]}, {found[1]}), {x}, {rows}, "
           f"{d.chance(0.5)})", 2)

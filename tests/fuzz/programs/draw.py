"""Draws a random program: lines are tried in eager one after the other, and kept if they work."""

import random
import warnings

import torch

from tests.fuzz.programs import values
from tests.fuzz.programs.determined import Determined
from tests.fuzz.programs.program import (
    DTYPE_NAMES,
    NATURAL,
    Net,
    Program,
    Setting,
    Source,
    made_module,
    namespace,
    reads_of,
    renamed,
)
from tests.fuzz.programs.settings import draw_setting
from tests.fuzz.programs.vocabulary import ROWS
from tests.fuzz.programs.vocabulary.base import Rejected

# What eager raises for a call that does not exist or does not fit.
REFUSALS = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, KeyError,
            AttributeError, AssertionError, ZeroDivisionError)
LARGEST = 70_000  # elements of one tensor
LARGEST_WEIGHT = 1_000_000  # elements of a module's parameter
FLOATS = ("F32", "F32", "F32", "F16", "BF16", "F64")
LIMITS = {torch.float16: 2e3, torch.bfloat16: 1e5}


class Draw:
    """A program that is being drawn.

    Attributes:
        rng: the source of all choices.
        training: whether it will be trained.
        dims: sizes that its tensors share.
        env: the value of each name.
    """

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.seed = seed
        rng = self.rng
        self.training = rng.random() < 0.5
        self.setting = draw_setting(rng, self.training)
        self.main = rng.choice(FLOATS)
        self.mixes = rng.random() < 0.4
        self.dims = [rng.choice((1, 2, 2, 3, 3, 4, 5, 7, 8)) for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.35:
            self.dims.append(rng.choice((16, 17, 31, 33, 64, 65, 100, 129, 257)))
        if rng.random() < 0.06:
            self.dims.append(0)
        if rng.random() < 0.04:
            self.dims.append(rng.choice((1000, 1025, 4099, 9001)))
        self.sources: list[Source] = []
        self.modules: list[tuple[str, str]] = []
        self.lines: list[str] = []
        self.env: dict = {}
        self._hidden: dict = {}
        self._names = namespace(NATURAL)
        self._count = 0

    # -- choices -------------------------------------------------------------------------------

    def sizes(self, low: int = 0, high: int = 4) -> tuple[int, ...]:
        """Random sizes of a tensor of ``low`` to ``high`` dimensions."""
        rank = self.rng.choice([r for r in (0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 5) if low <= r <= high])
        while True:
            sizes = tuple(self.rng.choice(self.dims) for _ in range(rank))
            if torch.Size(sizes).numel() <= LARGEST // 4:
                return sizes
            rank = max(rank - 1, low)
            if rank == low:
                return tuple(min(size, 7) for size in sizes)

    def dtype(self) -> str:
        """A floating-point dtype: mostly the main one of the program."""
        return self.rng.choice(FLOATS) if self.mixes and self.rng.random() < 0.4 else self.main

    def chance(self, p: float) -> bool:
        """True with probability ``p``."""
        return self.rng.random() < p

    def tensors(self, fits=None) -> list[str]:
        """The names of all tensors for which ``fits(tensor)`` is true."""
        return [name for name, value in self.env.items()
                if isinstance(value, torch.Tensor) and (fits is None or fits(value))]

    def pick(self, fits=None) -> str:
        """A tensor that fits, late ones more often.

        Raises:
            Rejected: There is none.
        """
        found = self.tensors(fits)
        if not found:
            raise Rejected
        return self.rng.choice(found[-4:] if self.chance(0.6) else found)

    def floating(self, low: int = 0, high: int = 6) -> str:
        """A floating-point tensor; a new one where there is none."""
        def fits(x):
            return x.is_floating_point() and low <= x.dim() <= high
        if not self.tensors(fits) or self.chance(0.05):
            return self.fresh(self.sizes(low, min(high, 5)), self.dtype())
        return self._in_some_order(self.pick(fits))

    def any(self, low: int = 0, high: int = 6) -> str:
        """A tensor of any dtype."""
        def fits(x):
            return low <= x.dim() <= high
        if not self.tensors(fits):
            return self.fresh(self.sizes(low, min(high, 5)), self.dtype())
        return self._in_some_order(self.pick(fits))

    def _in_some_order(self, name: str) -> str:
        """A tensor, or now and then a view of it with its dimensions in another order."""
        rank = self.env[name].dim()
        if rank < 2 or self.chance(0.9):
            return name
        return self.emit(f"{name}.permute({self.rng.sample(range(rank), rank)})")[0]

    def condition(self, sizes) -> str:
        """A bool tensor that broadcasts to ``sizes``: one that there is, or a new one."""
        found = self.tensors(lambda x: x.dtype is torch.bool and broadcasts(x.shape, sizes))
        if found and self.chance(0.6):
            return self.rng.choice(found)
        return self.fresh(self.within(sizes), "BOOL")

    def within(self, sizes) -> tuple[int, ...]:
        """Sizes that broadcast to ``sizes``."""
        sizes = list(sizes)
        if self.chance(0.5):
            return tuple(sizes)
        sizes = [1 if self.chance(0.35) else size for size in sizes]
        return tuple(sizes[self.rng.randint(0, len(sizes)):] if self.chance(0.5) else sizes)

    def partner(self, name: str, dtype: str | None = None) -> str:
        """A tensor that broadcasts with another tensor."""
        x = self.env[name]
        found = self.tensors(lambda y: broadcasts(y.shape, x.shape) and (
            dtype is None or DTYPE_NAMES[y.dtype] == dtype))
        if found and self.chance(0.6):
            return self.rng.choice(found)
        if dtype is None:
            own = DTYPE_NAMES.get(x.dtype, "F32")
            dtype = own if not self.mixes or self.chance(0.6) else self.rng.choice(
                (*FLOATS, "I64", "I32", "U8", "BOOL"))
        return self.fresh(self.within(x.shape), dtype)

    def fresh(self, sizes, dtype: str, fill: str = "", kinds: str = "xxwwb") -> str:
        """A new tensor from outside: an input, a parameter or a buffer."""
        is_float = dtype in NATURAL
        kind = self.rng.choice(kinds)
        if self.setting.micro_batches > 1 and len(sizes) == 0 and kind == "x":
            kind = "b"
        if kind == "w" and not is_float:
            kind = "b"
        if not fill:
            fill = self.rng.choice(values.FLOAT_FILLS if is_float else values.INT_FILLS)
            if is_float and self.chance(0.02):
                fill = self.rng.choice(("special", "large"))
        layout = "plain"
        if self.chance(0.3 if kind == "x" else 0.1):
            layout = self.rng.choice(values.LAYOUTS)
        if layout == "expanded" and kind == "w":  # no optimizer can update it
            layout = "plain"
        cut = self.setting.micro_batches > 1 and len(sizes) == 1
        if layout == "expanded" and (cut or fill.count(":") > 1):  # one element for many
            layout = "plain"
        number = sum(source.name[0] == kind for source in self.sources)
        source = Source(f"{kind}{number}", tuple(sizes), dtype, fill, layout)
        if torch.Size(sizes).numel() > LARGEST:
            raise Rejected
        tensor = source.tensor(NATURAL, self.seed)
        if kind == "w":
            tensor = torch.nn.Parameter(tensor)
        self.sources.append(source)
        self.env[source.name] = tensor
        return source.name

    def indices(self, high: int, sizes, dtype: str = "I64") -> str:
        """Whole numbers below ``high``."""
        return self.fresh(sizes, dtype, f"index:{high}", "xxb")

    def distinct(self, high: int, sizes, dim: int = 0, dtype: str = "I64") -> str:
        """Whole numbers below ``high``, no two equal along ``dim``; no later line may change them.
        """
        cut = dim == 0 and self.setting.micro_batches > 1
        name = self.fresh(sizes, dtype, f"index:{high}:{dim}", "b" if cut else "xxb")
        self._hidden[name] = self.env.pop(name)
        return name

    def module(self, text: str) -> str:
        """A new module."""
        name = f"m{len(self.modules)}"
        try:
            module = made_module(text, NATURAL, self.seed)
        except REFUSALS as error:
            raise Rejected from error
        if any(p.numel() > LARGEST_WEIGHT for p in module.parameters()):
            raise Rejected
        module.train(self.training)
        self.modules.append((name, text))
        self.env[name] = module
        return name

    # -- lines ---------------------------------------------------------------------------------

    def emit(self, expression: str, count: int = 1) -> list[str]:
        """Adds ``v = expression``; returns the names of the results.

        Raises:
            Rejected: Eager refuses it.
        """
        names = [f"v{self._count + i}" for i in range(count)]
        # Names of what is given up are not used again: no two lines share one.
        self._count += count
        self.run(f"{', '.join(names)} = {expression}", names)
        return names

    def change(self, statement: str, name: str) -> None:
        """Adds a statement that changes a tensor in place.

        Raises:
            Rejected: Eager refuses it, or the next call would find another shape or memory.
        """
        x = self.env[name]
        if "queeze_(" in statement and any(self.env.get(s.name) is x for s in self.sources
                                           if s.name[0] != "x"):
            raise Rejected
        if self.lies_in(name, "expanded"):
            raise Rejected
        with Determined():
            self.run(statement, [name])

    def lies_in(self, name: str, *layouts: str) -> bool:
        """Whether a tensor shares memory with an input of one of these layouts."""
        memory = self.env[name].untyped_storage()._cdata
        return any(source.layout in layouts and source.name in self.env
                   and self.env[source.name].untyped_storage()._cdata == memory
                   for source in self.sources)

    def run(self, line: str, results: list[str]) -> None:
        """Tries a line; keeps it if it works."""
        env = {**self._names, **self._hidden, **self.env}
        try:
            exec(line, env)
        except REFUSALS as error:
            raise Rejected from error
        for name in results:
            self._check(env[name])
        for name in results:
            self.env[name] = env[name]
        self.lines.append(line)

    def _check(self, value) -> None:
        if not isinstance(value, torch.Tensor) or value.dtype not in DTYPE_NAMES:
            raise Rejected
        if value.numel() > LARGEST or value.dim() > 6 or value.is_sparse:
            raise Rejected
        if value.numel() == 0:
            return
        x = value.detach()
        if x.is_floating_point():
            largest = x.abs().max().item()
            if not largest < LIMITS.get(x.dtype, 1e8) and self.chance(0.9):
                raise Rejected
        elif x.dtype is torch.int64 and x.abs().max() > 2**31 - 1:
            raise Rejected


def broadcasts(inner, outer) -> bool:
    """Whether a shape broadcasts to another shape."""
    if len(inner) > len(outer):
        return False
    return all(a in (1, b) for a, b in zip(reversed(inner), reversed(outer)))


def draw(seed: int) -> Program | None:
    """The program of a seed; None if nothing came of it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            torch.manual_seed(seed)
            return _Drawing(seed).program()
    except (Rejected, *REFUSALS):  # by tensors that eager cannot go on with, or too large values
        return None
    finally:
        torch.set_num_threads(threads)


class _Drawing:
    def __init__(self, seed: int):
        self.d = Draw(seed)

    def program(self) -> Program | None:
        d = self.d
        for _ in range(d.rng.randint(1, 3)):
            d.fresh(d.sizes(), d.dtype())
        wanted = d.rng.choice((2, 3, 4, 5, 6, 8, 10, 14, 20))
        rows = _Rows(d.rng)
        for _ in range(6 * wanted):
            if len(d.lines) >= wanted:
                break
            _try_row(d, rows.choice())
        outputs = self._outputs()
        if not outputs:
            return None
        loss = self._loss() if d.training else ""
        if d.training and not loss:
            return None
        if d.chance(0.03):
            outputs[-1] = self._overlapped(outputs)
        program = Program(d.seed, tuple(d.sources), tuple(d.modules), tuple(d.lines),
                          tuple(outputs), loss, d.setting)
        return with_possible_setting(pruned(program))

    def _outputs(self) -> list[str]:
        d = self.d
        made = [name for name in d.tensors() if name[0] == "v"] or d.tensors()
        if not made:
            return []
        if d.chance(0.5):  # nothing is computed in vain
            return self._unread(made)[-8:] or made[-1:]
        last = made[-3:]
        more = [d.rng.choice(made) for _ in range(d.rng.randint(0, 2))]
        return list(dict.fromkeys([*last, *more]))

    def _unread(self, names: list[str]) -> list[str]:
        """Those from which no other value is computed."""
        read = {name for line in self.d.lines if " = " in line for name in reads_of(line)}
        return [name for name in names if name not in read]

    def _overlapped(self, outputs: list[str]) -> str:
        """The last output as a directive gives it; it may be returned so alone."""
        d, *others, last = self.d, *outputs
        if last[0] != "v" or any(d.env[name] is d.env[last] for name in others):
            return last
        return d.emit(f"poptorch.set_overlap_for_output({last}, poptorch.OverlapMode.NoOverlap)")[0]

    def _loss(self) -> str:
        d = self.d
        grown = d.tensors(lambda x: x.requires_grad and x.numel() > 0)
        made = [name for name in grown if name[0] == "v"]
        if not made:
            return ""
        chosen = self._unread(made)[-6:] if d.chance(0.5) else []
        chosen = chosen or list(dict.fromkeys([*made[-2:], d.rng.choice(made)]))
        terms = []
        for name in chosen:
            x = f"{name}.to(F32)"
            weighted = (f"({x}.reshape(-1) * torch.linspace(-1, 1, {name}.numel(), dtype=F32))"
                        f".sum()")
            terms.append(d.rng.choice((weighted, weighted, f"{x}.sum()", f"{x}.mean()",
                                       f"{x}.pow(2).sum()", f"{x}.sin().sum()")))
        return " + ".join(terms)


# Families that are drawn more often than others: the basis of all programs.
_COMMON = {"elementwise": 3, "shaping": 3, "inplace": 2, "reductions": 2, "joining": 2}


class _Rows:
    """The rows of one program: some families more often, so that like ops meet."""

    def __init__(self, rng: random.Random):
        self._rng = rng
        self._rows: dict[str, list] = {}
        for row in ROWS:
            self._rows.setdefault(row.family, []).extend([row] * row.weight)
        families = sorted(self._rows)
        often = [family for family in families for _ in range(_COMMON.get(family, 1))]
        self._favored = [rng.choice(often) for _ in range(rng.randint(2, 4))]
        self._all = often

    def choice(self):
        """One row."""
        families = self._favored if self._rng.random() < 0.6 else self._all
        return self._rng.choice(self._rows[self._rng.choice(families)])


def _try_row(d: Draw, row) -> None:
    """Draws one row; if it fails, its changes are undone."""
    kept = len(d.sources), len(d.modules), len(d.lines), dict(d.env)
    try:
        row.function(d)
    except (Rejected, *REFUSALS):
        sources, modules, lines, env = kept
        del d.sources[sources:], d.modules[modules:], d.lines[lines:]
        d.env.clear()
        d.env.update(env)


def pruned(program: Program) -> Program:
    """The program without sources and modules that no line uses, unless it would have none."""
    text = " ".join([*program.lines, *program.outputs, program.loss])
    used = set(reads_of(text)) | set(program.outputs)
    sources = tuple(source for source in program.sources if source.name in used)
    modules = tuple(row for row in program.modules if row[0] in used)
    if not any(source.name[0] == "x" for source in sources):
        sources = (*sources, *program.of_kind("x")[:1])
    names = {}
    for kind in "xwb":
        of_kind = [source.name for source in sources if source.name[0] == kind]
        names |= {name: f"{kind}{i}" for i, name in enumerate(of_kind)}
    return renumbered(program.but(sources=sources, modules=modules), names)


def renumbered(program: Program, names: dict[str, str]) -> Program:
    """The program with other names of sources."""
    return program.but(
        sources=tuple(Source(names.get(s.name, s.name), s.sizes, s.dtype, s.fill, s.layout)
                      for s in program.sources),
        lines=tuple(renamed(line, names) for line in program.lines),
        outputs=tuple(names.get(name, name) for name in program.outputs),
        loss=renamed(program.loss, names))


def changes_state(program: Program) -> bool:
    """Whether ``forward`` changes a parameter or buffer; not all of torch's functions tell the
    version."""
    net = Net(program, NATURAL)
    states = [*net.parameters(), *net.buffers()]
    before = [(state._version, state.clone()) for state in states]
    net(*(source.tensor(NATURAL, program.seed) for source in program.of_kind("x")))
    return any(version != state._version or not torch.equal(value, state)
               for (version, value), state in zip(before, states, strict=True))


def with_possible_setting(program: Program) -> Program:
    """The program in a setting that it allows: what has no dimension cannot be cut, replicas have
    one value of each parameter and buffer, and hooks of parameters see the whole batch."""
    setting = program.setting
    if setting.replicas > 1 and changes_state(program):
        setting = Setting(**{**vars(setting), "replicas": 1})
        program = program.but(setting=setting)
    if setting.micro_batches > 1 and (any(not s.sizes for s in program.of_kind("x")) or any(
            weight._backward_hooks for weight in Net(program, NATURAL).parameters())):
        plain = {"iterations": 1, "accumulation": 1, "replicas": 1}
        return program.but(setting=Setting(**{**vars(setting), **plain}))
    return program


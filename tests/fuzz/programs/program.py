"""A random program: an ``nn.Module`` as text, the tensors it reads, and how it is run.

A program is plain data and prints as the Python expression that makes it again, so that a failure
can be read, edited, kept as a case and replayed. Its lines are statements of ``forward``; the names
in them tell what they are: ``x0`` an input, ``w0`` a parameter, ``b0`` a buffer, ``m0`` a module,
``v0`` a result.

The same text runs in three *worlds*, which differ in what the names ``F16 BF16 F32 F64`` mean:

* ``NATURAL``: what they say, as a user would run it;
* ``NARROW``: float64 is float32, as on the device;
* ``WIDE``: all are float64, torch's default dtype too, which gives the reference.
"""

import contextlib
import re
from dataclasses import dataclass, field, replace

import torch

import poptorch
from tests.fuzz.programs import custom_ops, higher_order, values

NATURAL = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32,
           "F64": torch.float64}
NARROW = {**NATURAL, "F64": torch.float32}
WIDE = dict.fromkeys(NATURAL, torch.float64)
INTEGERS = {"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
            "U8": torch.uint8, "BOOL": torch.bool}
DTYPE_NAMES = {dtype: name for name, dtype in (NATURAL | INTEGERS).items()}

_NAME = re.compile(r"\b([xwbmv]\d+)\b")
_TARGETS = re.compile(r"^((?:v\d+(?:, )?)+) = ")


@contextlib.contextmanager
def entered(world: dict):
    """Lets torch make tensors of a world's default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(world["F32"])
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def names_in(text: str) -> list[str]:
    """The names of tensors and modules that a text mentions, each once."""
    return list(dict.fromkeys(_NAME.findall(text)))


def targets_of(line: str) -> list[str]:
    """The results that a line makes."""
    found = _TARGETS.match(line)
    return found.group(1).split(", ") if found else []


def reads_of(line: str) -> list[str]:
    """The names that a line uses."""
    return names_in(_TARGETS.sub("", line))


def renamed(line: str, names: dict[str, str]) -> str:
    """The line with other names, which may be any text."""
    return _NAME.sub(lambda found: names.get(found.group(1), found.group(1)), line)


@dataclass(frozen=True)
class Source:
    """A tensor from outside of ``forward``.

    Attributes:
        name: ``x0`` for an input, ``w0`` for a parameter, ``b0`` for a buffer.
        sizes: of one micro-batch.
        dtype: name of the dtype, as ``F32``.
        fill: the kind of values, see ``values.py``.
        layout: the memory layout of an input, see ``values.py``.
    """

    name: str
    sizes: tuple[int, ...]
    dtype: str
    fill: str = "normal"
    layout: str = "plain"

    def tensor(self, world: dict, seed: int, slices: int = 1) -> torch.Tensor:
        """The tensor, with ``slices`` micro-batches along dimension 0."""
        sizes = (self.sizes[0] * slices, *self.sizes[1:]) if slices > 1 else self.sizes
        dtype = (world | INTEGERS)[self.dtype]
        data = values.draw(self.fill, sizes, (NATURAL | INTEGERS)[self.dtype],
                           seed + values.number_of(self.name))
        return values.laid_out(data.to(dtype), self.layout)


@dataclass(frozen=True)
class Setting:
    """How a program is compiled and run.

    Attributes:
        off: passes and switches that are turned off.
        algorithms: that are forced, as ``family:name``.
        isa: level of the instruction set; empty for the machine's best.
        threads: of torch.
        poison: whether dead memory is filled with NaN.
        reload_ir: whether the IR is printed and parsed again after each step.
        wide: whether 64-bit types are kept and all floats are float64.
        iterations: device iterations.
        accumulation: micro-batches for each weight update.
        replicas: that share the batch.
        calls: how often the executor is called, each time with new data.
        optimizer: text that makes the optimizer of ``params``.
    """

    off: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ()
    isa: str = ""
    threads: int = 1
    poison: bool = False
    reload_ir: bool = False
    wide: bool = False
    iterations: int = 1
    accumulation: int = 1
    replicas: int = 1
    calls: int = 1
    optimizer: str = "optim.SGD(params, 0.125)"

    @property
    def micro_batches(self) -> int:
        """Micro-batches of one call."""
        return self.iterations * self.accumulation * self.replicas


@dataclass(frozen=True)
class Program:
    """A program and its setting.

    Attributes:
        seed: of the values.
        sources: inputs, parameters and buffers.
        modules: name -> text that makes the module.
        lines: statements of ``forward``.
        outputs: names that ``forward`` returns.
        loss: expression of the loss, for training; empty for inference.
        setting: how it is compiled and run.
    """

    seed: int
    sources: tuple[Source, ...]
    modules: tuple[tuple[str, str], ...]
    lines: tuple[str, ...]
    outputs: tuple[str, ...]
    loss: str = ""
    setting: Setting = field(default_factory=Setting)

    def __str__(self) -> str:
        def items(name, rows):
            inner = "".join(f"        {row!r},\n" for row in rows)
            return f"    {name}=(\n{inner}    ),\n" if rows else f"    {name}=(),\n"

        return (f"Program(\n    seed={self.seed},\n{items('sources', self.sources)}"
                f"{items('modules', self.modules)}{items('lines', self.lines)}"
                f"    outputs={self.outputs!r},\n    loss={self.loss!r},\n"
                f"    setting={short(self.setting)},\n)")

    def of_kind(self, kind: str) -> list[Source]:
        """The sources whose names begin with a letter."""
        return [source for source in self.sources if source.name[0] == kind]

    def but(self, **changes) -> "Program":
        """The program with other fields."""
        return replace(self, **changes)


def short(setting: Setting) -> str:
    """A setting as text, without the fields at their defaults."""
    plain = Setting()
    shown = [f"{name}={value!r}" for name, value in vars(setting).items()
             if value != getattr(plain, name)]
    return f"Setting({', '.join(shown)})"


class Net(torch.nn.Module):
    """The module of a program in one world.

    Args:
        program: what to build.
        world: what the names of floating-point dtypes mean.
    """

    def __init__(self, program: Program, world: dict):
        super().__init__()
        for source in program.of_kind("w"):
            tensor = source.tensor(world, program.seed)
            self.register_parameter(source.name, torch.nn.Parameter(
                tensor, requires_grad=tensor.is_floating_point()))
        for source in program.of_kind("b"):
            self.register_buffer(source.name, source.tensor(world, program.seed))
        for name, text in program.modules:
            self.add_module(name, made_module(text, world, program.seed))
        self.train(bool(program.loss))
        self._run = compiled(program, world)

    def forward(self, *inputs):
        """Runs the lines of the program."""
        return self._run(self, *inputs)


def made_module(text: str, world: dict, seed: int) -> torch.nn.Module:
    """The module that a text makes, with the same values in each world."""
    made = []
    for meaning in (NATURAL, world):
        with torch.random.fork_rng(), entered(NATURAL):
            torch.manual_seed(seed)
            made.append(eval(text, namespace(meaning)))
            if not made[1:]:
                _leave_start(made[0])
    natural, module = made
    with torch.no_grad():
        for mine, given in zip([*module.parameters(), *module.buffers()],
                               [*natural.parameters(), *natural.buffers()], strict=True):
            mine.copy_(given)
    return module


def _leave_start(module: torch.nn.Module) -> None:
    """Moves what starts as all zeros or all ones, as training does: biases, statistics and weights
    of norms. Of those, a sign or a factor that is wrong would not be seen."""
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point() and tensor.numel() and (
                    tensor == tensor.flatten()[0]).all():
                tensor += torch.rand(tensor.shape, dtype=tensor.dtype) - 0.25


def within(manager, compute):
    """What a function gives inside of a context: a line has no `with`."""
    with manager:
        return compute()


def namespace(world: dict) -> dict:
    """What the text of a program may name."""
    return {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "poptorch": poptorch,
            "within": within, "custom": custom_ops, "higher": higher_order,
            "inf": float("inf"), "nan": float("nan"), **INTEGERS, **world}


def source_text(program: Program) -> str:
    """``forward`` as Python text."""
    inputs = [source.name for source in program.of_kind("x")]
    own = [source.name for source in program.sources if source.name[0] in "wb"]
    own += [name for name, _ in program.modules]
    lines = [f"{name} = self.{name}" for name in own]
    lines += program.lines
    results = [*program.outputs]
    if program.loss:
        lines.append(f"loss = poptorch.identity_loss({program.loss}, 'none')")
        results.append("loss")
    returned = f"return {', '.join(results)}," if results else "return ()"
    body = "".join(f"    {line}\n" for line in [*lines, returned])
    return f"def forward({', '.join(['self', *inputs])}):\n{body}"


def compiled(program: Program, world: dict):
    """``forward`` as a function."""
    names = namespace(world)
    exec(compile(source_text(program), "random_program.py", "exec"), names)
    return names["forward"]

"""Types of the compiled extension."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from typing_extensions import Buffer

from poptorch._C_tensors import *  # a stub alone: at run time all names are here

Attribute = (
    None | bool | int | float | str | "DType" | "GraphRef" | Sequence["Attribute"]
)
TypePair = tuple["DType | str", Sequence[int]]
Place = tuple[str, int, str]

class DType:
    """Element type of the IR, made from its name: ``f32``, ``bf16``, ``bool``, ..."""

    def __init__(self, name: str) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def item_bytes(self) -> int: ...

class GraphRef:
    """Names another graph of the module, as an attribute of a loop."""

    def __init__(self, name: str) -> None: ...
    @property
    def name(self) -> str: ...

class Value:
    """A value of a graph. It must not be used any more after a pass has run."""

    @property
    def name(self) -> str:
        """Name without the ``%``."""
    @property
    def dtype(self) -> str: ...
    @property
    def sizes(self) -> list[int]: ...
    @property
    def type_text(self) -> str:
        """The type as in IR text, for instance ``f32[8,4]``."""
    @property
    def op(self) -> str:
        """Name of the op that makes it."""

class Graph:
    """A graph of a module."""

    @property
    def name(self) -> str: ...
    outputs: list[Value]
    def op(
        self,
        name: str,
        operands: Sequence[Value | None] = ...,
        attrs: Mapping[str, Attribute] = ...,
        types: Sequence[TypePair] | None = None,
        place: Place | None = None,
        names: Sequence[str | None] | None = None,
    ) -> list[Value]:
        """Appends an op of this row of the table, and returns its results. ``None`` in
        ``operands``: an absent optional tensor. ``types``: of the results; ``None``: the row
        infers them. ``place``: the user's file, line and module path. ``names``: of the results."""
    def constant(
        self, dtype: DType | str, sizes: Sequence[int], data: Buffer, place: Place | None = None,
        name: str = "", annotations: Mapping[str, Any] = ...
    ) -> Value:
        """Appends a constant with these bytes, row-major."""
    def text(self) -> str: ...
    def __len__(self) -> int:
        """Number of ops."""

class Module:
    """A program of graphs."""

    def __init__(self) -> None: ...
    def add_graph(self, name: str) -> Graph: ...
    def graph(self, name: str) -> Graph:
        """The graph of this name; an error that lists the names when there is none."""
    @property
    def graphs(self) -> list[Graph]: ...
    def add_constant(self, dtype: DType | str, sizes: Sequence[int], data: Buffer) -> str:
        """Stores bytes and returns their hash, for a ``constant`` op."""
    def constants(self) -> dict[str, tuple[str, list[int], bytes]]:
        """Stored constants by hash: dtype, sizes, bytes."""
    def save_constants(self, path: str) -> bool:
        """Writes the constants that ops name as a safetensors file; False when there are none."""
    def text(self) -> str:
        """IR text; ``parse`` reads it back to the same bytes."""
    def verify(self, level: str = "translated") -> None:
        """Checks the rules of ``any``, ``translated``, ``placed``, ``lowered``, ``scheduled`` or
        ``planned``."""

def parse(text: str, constants_of: Module | None = None) -> Module:
    """The module of this IR text; large constants are looked up in the other module."""
def load_constants(path: str) -> Module:
    """A module that only holds the constants of a file that ``save_constants`` wrote."""
def unpack_constants(data: bytes, name: str) -> Module:
    """Likewise, of the bytes of a file of that name."""
def annotations() -> dict[str, list[str]]:
    """The attributes that ops of several rows may carry, and the only ops that do (none: any)."""
def op_table() -> list[dict[str, Any]]:
    """All rows of the op table, sorted by name."""
def op_row(name: str) -> dict[str, Any]:
    """One row; an unknown name is an error that lists near ones."""
def custom_ops() -> list[dict[str, Any]]:
    """The ops of all libraries of custom ops that are loaded."""
def find_custom_op(domain: str, name: str, version: int) -> dict[str, Any] | None:
    """That op of a library that is loaded, or None; an error when two libraries have it."""
def evaluate(
    op: str, operands: Sequence[Any], attrs: Mapping[str, Attribute] = ...,
    types: Sequence[TypePair] | None = None, threads: int = 1, inplace: Sequence[int] = ...
) -> list[Any]:
    """Computes one op on numpy arrays (``None``: absent). A bf16 operand is ``(uint16 array,
    "bf16")``; bf16 results are uint16 arrays."""
def infer(
    op: str, operands: Sequence[TypePair | None], attrs: Mapping[str, Attribute] = ...
) -> list[tuple[str, list[int]]]:
    """Result types of an op for operand types."""
def work(
    op: str, operands: Sequence[TypePair | None], attrs: Mapping[str, Attribute] = ...,
    types: Sequence[TypePair] | None = None
) -> tuple[float | None, float]:
    """FLOPs (None: not known) and bytes of one run of an op."""
def targets() -> list[dict[str, Any]]:
    """All fields of each row of ``csrc/device/targets.def``."""
def target_fields() -> list[tuple[str, bool, int | float, str]]:
    """Name, whether it is an integer, least value and meaning of each field of a target."""
def op_costs(text: str, target: str | dict[str, Any],
             settings: Mapping[str, Any] = ...) -> list[dict[str, Any]]:
    """Cycles and bytes of each op of IR text. Target and settings: see ``cost_settings.py``."""
def systems() -> list[tuple[str, int, dict[str, Any], int]]:
    """Name, IPUs, target (a row of ``csrc/device/targets.def``) and hosts of each system."""
def passes() -> list[tuple[str, str]]:
    """Name and help of each pass: those of ``rewrite``, then those of ``lower``."""
def pipeline(step: str = "") -> list[str]:
    """Names of the passes of a compilation, in order: of ``rewrite``, of ``lower``, or of both."""
def algorithm_of(
    op: str, operands: Sequence[Any], attrs: Mapping[str, Attribute] = ...
) -> str:
    """Which algorithm computes an op, with operands as for ``evaluate``; empty: there is one."""
def switches() -> list[tuple[str, str]]:
    """Name and help of each optimization that ``POPTORCH_OFF`` turns off, beside the passes."""
def algorithms() -> list[tuple[str, str, str]]:
    """Family, name and help of each algorithm that ``POPTORCH_ALGORITHM`` can force."""
def scale_cost(algorithm: str, factor: float) -> None:
    """For tests: multiplies the estimated cost of ``family:name`` in this process."""
def measured(
    problem: str, algorithms: Sequence[str], trials: Sequence[Callable[[], None]]
) -> list[tuple[str, float]] | None:
    """For tests: (algorithm, us) of each, the chosen first; None: tables choose."""
def run_passes(
    module: Module, names: Sequence[str], limit: int = -1, verify: bool = True
) -> list[tuple[str, bool, float]]:
    """Runs passes in place, at most ``limit`` of them; name, changed, seconds of each."""

class Stream:
    """A host stream of an executable."""

    @property
    def name(self) -> str: ...
    @property
    def is_input(self) -> bool: ...
    @property
    def dtype(self) -> str:
        """Element type as in IR text: ``f32``, ``i32``, ..."""
    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of one slice."""
    @property
    def repeat(self) -> bool:
        """Whether every step reads the same single slice."""
    @property
    def slice_bytes(self) -> int: ...

class State:
    """A named state of an executable: a parameter, a buffer, optimizer state, ..."""

    @property
    def path(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def sizes(self) -> tuple[int, ...]: ...
    @property
    def role(self) -> str:
        """``parameter``, ``buffer``, ``optimizer``, ``rng``, ``hyper``, or empty."""
    @property
    def bytes(self) -> int: ...
    @property
    def shard_bytes(self) -> int:
        """Of the part that a replica has; 0 where each has the whole state."""

class Executable:
    """A compiled program with its memory.

    Host tensors are handed over as addresses (``tensor.data_ptr()``): contiguous, of the dtype of
    the stream, alive until ``run`` returns. An input holds ``host_slices(name)`` slices along
    dimension 0: with D device iterations, R replicas and G micro-steps, the micro-step (d, r, g)
    takes slice ``(d * R + r) * G + g``. Outputs are numbered in the same way.
    """

    def streams(self) -> list[Stream]:
        """All streams; ``run`` takes host addresses in this order."""
    def states(self) -> list[State]: ...
    @property
    def replicas(self) -> int: ...
    @property
    def device_iterations(self) -> int: ...
    @property
    def runs_begun(self) -> int:
        """How many runs began, also those that failed on the way."""
    @property
    def ipus(self) -> int:
        """IPUs of one replica."""
    def write_state(self, path: str, ptr: int, nbytes: int, replica: int | None = None) -> None:
        """Copies into a state; ``None`` writes to all replicas."""
    def share_state(self, path: str, ptr: int, nbytes: int, storage: int) -> bool:
        """Gives a large state that only the host writes a tensor's bytes, by sharing pages.

        ``storage`` is the address of the tensor's storage (``untyped_storage()._cdata``). The host
        may write to the tensor and free it: the state does not change. ``False``, and nothing has
        changed, where pages cannot be shared: :meth:`write_state` then.
        """
    def clear_state(self, path: str) -> None:
        """Fills a state with zeros, in all replicas."""
    def read_state(self, path: str, ptr: int, nbytes: int, replica: int = 0) -> None: ...
    def release(self, elsewhere: set[str]) -> None:
        """Gives the memory of the program back; no run until :meth:`restore`. States keep their
        values, but for those that are ``elsewhere``: write these again after ``restore``."""
    def restore(self) -> None:
        """Takes memory again, with the states that were kept."""
    @property
    def has_memory(self) -> bool:
        """False between :meth:`release` and :meth:`restore`."""
    def has_state(self, path: str) -> bool:
        """Whether a state has a value; only of a released program it may have none."""
    def is_same_in_replicas(self, path: str) -> bool:
        """Whether all replicas have the same value of a state."""
    def set_output_mode(self, stream: str, mode: str, period: int = 1) -> None:
        """Sets what an output returns: all, final, every_n (of a period), sum, none."""
    def set_timeout(self, seconds: float) -> None: ...
    def host_slices(self, stream: str) -> int:
        """Slices in the host tensor of a stream (of an output: in its present mode)."""
    def run(self, pointers: Sequence[int], threads: int) -> None:
        """Runs one call. ``pointers`` are host addresses in the order of ``streams()``.

        The GIL is released. Sizes are not checked here: compare with ``host_slices`` before.
        What the handler of a signal raises ends the run between two iterations of a loop.
        """
    def ir(self, step: str) -> str:
        """IR text after ``translate``, ``rewrite``, ``place``, ``lower``, ``schedule`` or
        ``plan``."""
    def steps(self) -> list[str]:
        """The steps with a text, in their order."""
    def shares(self) -> list[dict[str, Any]]:
        """What runs where: a row for each stage, as from ``place``."""
    def op_report(self, algorithms: bool = False) -> dict[str, dict[str, int]]:
        """Counts of kernels by phase: ``forward``, ``backward``, ``update``.

        An opaque op counts under its overload name, ``aten::foo.bar``. With ``algorithms`` names
        say which one computes the op, where there are several: ``convolution [winograd]``.
        """
    def memory_report(self) -> dict[str, int]:
        """Bytes by category when a step needs most, and ``arena`` (all of it), for one replica."""
    def timestamps(self) -> list[tuple[int, int]]:
        """Begin and end of each device iteration of the last run, ns of ``CLOCK_MONOTONIC``."""
    def stream_times(self, stream: str) -> list[tuple[int, int]]:
        """When each slice was asked for and was there in the last run, ns of that clock."""
    def constants(self) -> bytes:
        """The large constants of the planned text, as ``save_constants`` writes them."""
    def set_profiling(self, is_on: bool) -> None:
        """Counts the time of each op from now on, from zero; ``False`` stops it."""
    def set_delay(self, most_us: int, seed: int) -> None:
        """Each worker waits at most so many microseconds before each part: for tests."""
    def first_non_finite(self) -> dict[str, Any] | None:
        """The first value of the last run that is not finite: what, condition, element, phase,
        place, the numbers of its step and those as words; of a program that records it."""

    @property
    def is_recording_floats(self) -> bool:
        """Whether runs record which value first is not finite."""

    def profile(self) -> list[dict[str, str | int]]:
        """Ops that ran while profiling: ``op``, ``phase``, ``types``, ``place``, ``runs``, ``ns``.

        ``flops`` (None: not known) and ``bytes`` are those of one run. Loops are not among them,
        what runs in them is.
        """
    def host_form(self) -> dict[str, str | int]:
        """How replicas and micro-batches run: ``form``, ``workers`` and the ``reason``."""
    def step_times(self) -> dict[str, int]:
        """Wall time of each compile step in ns."""

def allow_resizing(storage: int) -> None: ...
def memory_limit(root: str = "") -> int:
    """Bytes of memory that this process may have, by the files under ``root``."""
def compile(module: Module, options: Mapping[str, object] = ...,
            progress: Callable[[str], None] | None = None,
            placed: Callable[[int], None] | None = None) -> Executable:
    """Compiles a translated module, which is emptied. Calls ``progress(step)`` before each step,
    and ``placed(ipus)`` after place, with the IPUs of one replica.

    Options: ``threads``, ``replicas`` (ints), ``dump_folder`` (str), ``reload_ir``, ``poison``,
    ``deterministic``, ``check_floats``, ``record_floats``, ``check_plan``, ``cut_tasks``,
    ``keep_text`` (bools), ``pass_limit`` (int, -1: no limit). Others come from the environment."""
def placed_text(module: Module, options: Mapping[str, object] = ...,
                progress: Callable[[str], None] | None = None) -> str:
    """As ``compile``, up to place: the text, and no executable."""
def assemble_text(
    text: str, options: Mapping[str, object] = ..., constants: Module | None = None,
    texts: Sequence[tuple[str, str]] = ..., shares: Sequence[dict[str, Any]] = ...,
    is_proved: bool = False,
) -> Executable:
    """Makes an executable of planned IR text, with ``texts`` by step and ``shares`` for reports. Of
    one that is proved without checking its rules and its plan."""
def place(module: Module) -> list[dict[str, Any]]:
    """Step 4, in place. Returns a row for each stage: its place, blocks, parameters, bytes."""
def cut_tasks(module: Module) -> None: ...  # step 4, in place: tasks in the micro-batch's graph
def inline_tasks(module: Module) -> None: ...  # step 5, in place: takes back what cut_tasks did
def lower(module: Module) -> None: ...  # step 5, in place: all passes of the CPU's lowering
def schedule(module: Module) -> None: ...  # step 6, in place
def plan(module: Module, threads: int = 1) -> None: ...  # step 7, in place, without the check
def check_plan(module: Module) -> None: ...  # fails if live values overlap
def work_report(text: str) -> dict[str, dict[str, dict[str, int | None]]]:
    """``flops``, ``bytes`` and ``count`` of ops of a placed program's text, by phase and op."""
def recompute_tasks(module: Module) -> None: ...  # after cut_tasks, where the strategy asks for it
def schedule_tasks(module: Module) -> None: ...  # step 4: offsets and depths
def check_tasks(module: Module) -> None: ...  # fails if a pipeline never ends
def program_costs(text: str, target: str | dict[str, Any],
                  settings: Mapping[str, Any] = ...) -> dict[str, Any]:
    """Cycles of one step of a placed program: of its ops, tasks, transfers and updates."""
def block_costs(text: str, target: str | dict[str, Any],
                settings: Mapping[str, Any] = ...) -> list[dict[str, Any]]:
    """Cycles of one micro-batch by block, from the text of a program that is not placed."""
def task_report(text: str) -> dict[str, Any]:
    """``schedule``, ``micro_batches``, ``tasks``, ``edges``, ``steps`` of a placed text."""
def block_report(text: str) -> list[dict[str, Any]]:
    """FLOPs of each block, ``forward`` and ``backward``, of a text that is not placed yet."""
def ipu_memory(text: str) -> list[dict[str, int]]: ...  # by category, for each IPU: ipu_memory.h
def tile_memory(text: str, target: str | dict[str, Any], settings: dict[str, Any] = {}) \
    -> list[dict[str, Any]]: ...  # for each IPU: its docstring says what
def memory_report(module: Module) -> dict[str, int]: ...  # bytes by category, of a planned module
def aten_allocations() -> int:
    """How often torch's own allocator was asked for memory since ATen kernels were prepared."""
def isa() -> str:
    """The instruction set that kernels use: ``base``, ``avx2``, ``avx512`` or ``amx``."""
def machine_isas() -> list[str]:
    """The instruction sets that vector kernels can use on this machine, lowest first."""
def set_isa(name: str) -> None:
    """For tests: sets POPTORCH_ISA, for programs that are compiled from now on."""
def gemm_by() -> str:
    """What computes f32 products of matrices: "loops" of our own or a "library"."""
def set_gemm(name: str) -> None:
    """For tests: sets POPTORCH_GEMM, for programs that are compiled from now on."""
def has_bf16x3_gemm() -> bool:
    """Whether f32 products run on the CPU's unit for bfloat16 (AMX), by parts."""

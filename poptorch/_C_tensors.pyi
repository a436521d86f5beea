"""Types of what the extension does with the host's tensors and files. ``_C.pyi`` has its names too:
there is no such module at run time."""

from collections.abc import Callable, Sequence
from typing import Any

from poptorch._C import Executable

class HostPool:
    """Recycled host memory for results. Its tensors may outlive it."""

    def __init__(self) -> None: ...
    def expect(self, nbytes: int) -> None:
        """Announces a result of each call, so that its memory is kept."""

class TensorWatch:
    """Finds what changed of tensors since it was made, or last noted it."""

    WRITTEN: int
    CONVERTED: int
    def __init__(self, tensors: Sequence[object], has_gradients: bool) -> None: ...
    def look(self) -> int:
        """The sum of ``WRITTEN`` (values, or where they lie) and ``CONVERTED`` (dtype, shape; with
        gradients also ``requires_grad`` and the table of hooks), if any tensor changed so."""
    def note(self, changes: int) -> None:
        """Takes all tensors as they are, as far as these changes go."""

class ItemWatch:
    """Tells whether dicts and lists hold the same objects in the same order, and places of dicts
    the same object, as when it was made or last noted them."""

    def __init__(
        self,
        containers: Sequence[dict[str, Any] | list[Any]],
        places: Sequence[tuple[dict[str, Any], object]] = (),
    ) -> None: ...
    def is_same(self) -> bool: ...
    def note(self) -> None:
        """Takes everything as it is."""

class TensorKind:
    """Type and sizes of a dense tensor on the CPU."""

    def __init__(self, dtype: object, sizes: Sequence[int]) -> None: ...
    def matches(self, object: object) -> bool:
        """Whether an object has this kind, and the class torch.Tensor or torch.nn.Parameter."""
    def empty(self, pool: HostPool) -> Any:
        """An uninitialized contiguous one for a result; if it is large, in memory of the pool,
        which is used again once the tensor is freed."""

def all_match(kinds: list[TensorKind], objects: tuple[Any, ...]) -> bool:
    """Whether each object matches its ``TensorKind``."""
def addresses(kinds: list[TensorKind], tensors: list[Any], may_require_grad: bool) -> list[int]:
    """Where each tensor lies; 0: it has to be copied before a program can read it."""
def drawn_random_state() -> list[int]:
    """A random state (seed of two words, replica, counter) with a seed from torch's generator."""
def has_settings(autocast: object, default: object) -> bool:
    """Whether torch.autocast lets the CPU compute in this type (None: it is off), and this is the
    type of tensors that are made without one."""
class GraphProgram:
    """A program of a graph of torch.compile, with tensors. A row is stream, dtype on the device and
    in the graph, sizes and strides; of a result also (argument, is_converted) or (result,)."""

    def __init__(
        self, executable: Executable, arguments: list[tuple[Any, ...]],
        results: list[tuple[Any, ...] | None], convert: Callable[[int, Any], Any],
        recordings: list[Any],
    ) -> None: ...
    def draw_into(self, stream: int) -> None:
        """Each run gets a random state in this stream."""
    def run(self, arguments: list[Any]) -> list[Any] | None:
        """The results; None: torch does not compute values now, or something is recorded."""

class GraphCall:
    """A function of a graph's arguments, which gives its results as a tuple. ``forward`` takes and
    gives lists; once it has run, its attribute ``program`` runs later calls, unless it is None."""

    def __init__(self, forward: Callable[[list[Any]], list[Any]]) -> None: ...
    def differentiate(
        self, backward: Callable[[list[Any]], list[Any]],
        backward_without: Callable[[list[int]], Callable[[list[Any]], list[Any]]],
        backward_once: Callable[[list[Any]], Sequence[Any]], returned: int, is_reached: list[bool],
        with_grad: list[int],
    ) -> None:
        """Results get a ``grad_fn``. ``backward`` takes the results of ``forward`` after the first
        ``returned``, which the caller gets, and gradients; ``backward_once`` does where these
        require grad. ``backward_without`` makes a backward graph that does not take the gradients
        of these numbers. ``is_reached``: of each argument; ``with_grad``: numbers of results."""
    def __call__(self, *arguments: Any) -> tuple[Any, ...]: ...
class FileMap:
    """The bytes of an open file, mapped. Writing to them does not change the file."""
    def __init__(self, file: int) -> None: ...
    def __buffer__(self, flags: int) -> memoryview: ...

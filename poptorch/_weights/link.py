"""What one executor has to do with the store of weights."""

import weakref
from collections.abc import Iterable

import torch

from poptorch._base import interrupts
from poptorch._base.torch_private.basic import plain_access
from poptorch._weights import instrument
from poptorch._weights.entry import CompiledProgram
from poptorch._weights.store import STORE
from poptorch._weights.values import spread
from poptorch._weights.watched import tensors_of
from poptorch.errors import Error


def check_kept(replaced: list[str]) -> None:
    """Raises an Error if :meth:`WeightLink.note_run` found that another run or write replaced what
    a run changed."""
    if replaced:
        more = f" and {len(replaced) - 1} more" if len(replaced) > 1 else ""
        raise Error(f"[weights] {replaced[0]}{more}: another executor ran with it, or wrote it, "
                    f"during this call, in another thread or the handler of a signal. That value "
                    f"holds, the result of this call is lost. Let one call end before the other "
                    f"begins.")


class WeightLink:
    """Keeps the copies of an executor's program and the module's tensors what they should be. In
    training the module is watched."""

    def __init__(self, module: torch.nn.Module, training: bool, executor: weakref.ref):
        self._module = module
        self._training = training
        self._executor = executor
        self._programs: dict[object, CompiledProgram] = {}  # by compiled model
        self._watch()

    def _watch(self) -> None:
        if self._training:
            instrument.instrument(self._module)

    def unwatch(self) -> None:
        """Ends the watch of a module for training; its tensors may still be those of another."""
        if self._training:
            self.pull_to_host()  # another executor may have what nothing asks for when it is gone
            instrument.remove(self._module)

    def join(self, compiled) -> None:
        """Takes note of a new program, or one that was forgotten, and gives it its first values."""
        self.forget(compiled)  # what a fault has left behind
        self._watch()  # destroy() ended that, and tensors may have come since
        spread(compiled.program)
        program = CompiledProgram(compiled.executable, compiled.program, self._executor())
        with plain_access():
            for path, tensor in compiled.program.states.items():
                program.add_part(path, STORE.record(tensor), path in compiled.program.updated)
        self._programs[compiled] = program
        STORE.join(program)
        compiled.guards.note_written()

    def check_arguments(self, compiled, tensors: list[torch.Tensor]) -> None:
        """Raises an Error when an argument shares memory with a parameter or buffer, and
        ``forward`` changes one of them."""
        program = self._programs.get(compiled)
        if program is None or not (program.changed_states or program.changed_arguments):
            return
        for number, tensor in enumerate(tensors):
            part = STORE.part_in_memory(program, tensor, None if number in
                                        program.changed_arguments else program.changed_states)
            if part is not None:
                name = compiled.arguments.tensor_leaves()[number].path
                changed = name if number in program.changed_arguments else part.path
                raise Error(f"[arguments] forward changes {changed} in place, and {name} shares "
                            f"memory with {part.path}; the program has a copy of each. Pass "
                            f"{name}.clone().")

    def before_run(self, compiled, is_written: bool) -> None:
        """Brings the copies of a compiled model up to date, where others wrote since its last run
        (``is_written``: the host did)."""
        program = self._programs.get(compiled)
        if program is not None and (is_written or program.checked_at != STORE.changes):
            with interrupts.deferred():
                STORE.sync(program)
                compiled.guards.note_written()

    def note_run(self, compiled, is_end: bool = False) -> list[str]:
        """Takes note of what a run changes, before it and, also if it fails, after it
        (``is_end``); returns the paths of what was replaced meanwhile, see :func:`check_kept`."""
        program = self._programs.get(compiled)
        if program is not None and program.ran_at != STORE.changes:
            with interrupts.deferred():
                return STORE.mark_written(program, is_end)
        return []

    def pull_to_host(self) -> bool:
        """Copies the newest values of the module's tensors to the host, if a device has them;
        returns whether it had."""
        return STORE.pull_to_host(tensors_of(self._module))

    def sharers(self) -> list:
        return STORE.executors_of(tensors_of(self._module))

    def to_host(self) -> None:
        """Writes to the host what runs of the programs changed, except what others wrote since.
        Programs without a device change nothing: the host was given it before."""
        for program in self._programs.values():
            STORE.fetch(program)

    def to_device(self, compiled, paths: Iterable[str] | None = None) -> None:
        """Lets the host's values, of all states or of those with ``paths``, hold for all programs;
        for one without a device when it has one."""
        program = self._programs.get(compiled)
        if program is not None:
            STORE.publish(program, paths)
        else:
            STORE.publish_to_all(tensor for path, tensor in compiled.program.states.items()
                                 if paths is None or path in paths)

    def loaded(self) -> None:
        """The same for the tensors of the module, whether this executor is compiled or not."""
        STORE.publish_to_all(tensors_of(self._module))

    @property
    def is_newest(self) -> bool:
        return any(program.is_newest() for program in self._programs.values())

    def forget(self, compiled=None) -> None:
        """A program is given up; None: all of them."""
        for one in [one for one in self._programs if compiled in (None, one)]:
            STORE.detach(self._programs[one])
            del self._programs[one]

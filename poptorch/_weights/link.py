"""What one executor has to do with the store of weights."""

from collections.abc import Iterable

import torch

from poptorch._base import interrupts
from poptorch._base.hidden_subclass import plain_access
from poptorch._weights import instrument
from poptorch._weights.entry import CompiledProgram
from poptorch._weights.store import STORE
from poptorch._weights.values import spread
from poptorch._weights.watched import tensors_of
from poptorch.errors import Error


class Copies:
    """A compiled model's program and its tensors.

    Args:
        compiled: the compiled model.
        executor: of which ``copyWeightsToHost`` is called; it is not kept alive.
    """

    def __init__(self, compiled, executor):
        self.compiled = compiled
        program = compiled.program
        self.program = CompiledProgram(compiled.executable, program, executor)
        with plain_access():
            for path, tensor in program.states.items():
                self.program.add_part(path, STORE.record(tensor), path in program.updated)
        trained = {path for group in (program.optimizer.groups if program.optimizer else ())
                   for path, _ in group.params}
        # What forward changes: a program has a copy of it, and one of an argument in its memory.
        self.changed_states = frozenset((program.updated - trained) | program.changed.keys())
        self.changed_arguments = frozenset(output.leaf for _, output in program.outputs
                                           if output is not None and output.kind == "input_update")


def check_kept(replaced: list[str]) -> None:
    """Checks that what a run changed was not replaced.

    Args:
        replaced: what :meth:`WeightLink.note_run` gave after the run.

    Raises:
        poptorch.Error: It was.
    """
    if replaced:
        more = f" and {len(replaced) - 1} more" if len(replaced) > 1 else ""
        raise Error(f"[weights] {replaced[0]}{more}: another executor ran with it, or wrote it, "
                    f"during this call, in another thread or the handler of a signal. That value "
                    f"holds, what this call made of it is lost. Let one call end before the other "
                    f"begins.")


class WeightLink:
    """Keeps the copies of an executor's program and the module's tensors what they should be.

    Args:
        module: the module that the user wrapped.
        training: whether the module is watched.
    """

    def __init__(self, module: torch.nn.Module, training: bool):
        self._module = module
        self._training = training
        self._copies: Copies | None = None
        self._watch()

    def _watch(self) -> None:
        if self._training:
            instrument.instrument(self._module)

    def unwatch(self) -> None:
        """Ends the watch of a module for training; its tensors may still be those of another."""
        if self._training:
            self.bring()  # another executor may have what nothing asks for when it is gone
            instrument.remove(self._module)

    def compiled(self, compiled, executor) -> None:
        """Takes note of a new program and gives it its first values.

        Args:
            compiled: the compiled model.
            executor: of which ``copyWeightsToHost`` is called; it is not kept alive.

        Raises:
            poptorch.Error: A run changes a tensor in whose memory another one lies.
        """
        self.forget()  # one that a fault has left behind
        self._watch()  # destroy() ended that, and tensors may have come since
        spread(compiled.program)
        self._copies = Copies(compiled, executor)
        STORE.join(self._copies.program)
        compiled.guard.note_written()

    def check_arguments(self, compiled, tensors: list[torch.Tensor]) -> None:
        """Checks that no argument lies in the memory of a parameter or buffer, where ``forward``
        changes one of both.

        Args:
            compiled: the compiled model.
            tensors: the arguments.

        Raises:
            poptorch.Error: One does.
        """
        copies = self._copies
        if copies is None or not (copies.changed_states or copies.changed_arguments):
            return
        for number, tensor in enumerate(tensors):
            part = STORE.part_in_memory(copies.program, tensor, None if number in
                                        copies.changed_arguments else copies.changed_states)
            if part is not None:
                name = compiled.arguments.tensor_leaves()[number].path
                changed = name if number in copies.changed_arguments else part.path
                raise Error(f"[arguments] forward changes {changed} in place, and {name} lies in "
                            f"the memory of {part.path}; the program has a copy of each. Pass "
                            f"{name}.clone().")

    def before_run(self, compiled, is_written: bool) -> None:
        """Brings the copies of a compiled model up to date, where others wrote since its last run.

        Args:
            compiled: nothing is done if another thread has destroyed it meanwhile.
            is_written: what its guard said of the host's tensors.
        """
        copies = self._copies
        if copies is not None and copies.compiled is compiled \
                and (is_written or copies.program.checked_at != STORE.changes):
            with interrupts.deferred():
                STORE.sync(copies.program)
                compiled.guard.note_written()

    def note_run(self, compiled, is_end: bool = False) -> list[str]:
        """Takes note of what a run changes, before it and, also if it fails, after it.

        Args:
            compiled: nothing is done if another thread has destroyed it meanwhile.
            is_end: whether this is after the run.

        Returns:
            Paths of what was replaced meanwhile, see :func:`check_kept`.
        """
        copies = self._copies
        if copies is not None and copies.compiled is compiled \
                and copies.program.ran_at != STORE.changes:
            with interrupts.deferred():
                return STORE.ran(copies.program, is_end)
        return []

    def bring(self) -> bool:
        """Brings the module's tensors up to date; whether a device had newer values."""
        return STORE.bring(tensors_of(self._module))

    def sharers(self) -> list:
        """The executors with copies of the module's tensors, this one among them."""
        return STORE.executors_of(tensors_of(self._module))

    def to_host(self) -> None:
        """Writes to the host what runs of the program changed, except what others wrote since.

        Nothing, where the program has no device: the host was given it before.
        """
        if self._copies is not None:
            STORE.fetch(self._copies.program)

    def to_device(self, compiled, paths: Iterable[str] | None = None) -> None:
        """Lets the host's values hold for all programs; for one without a device when it has one.

        Args:
            compiled: the compiled model.
            paths: of the program's states; None: all.
        """
        if self._copies is not None:
            STORE.publish(self._copies.program, paths)
        else:
            STORE.publish_to_all(tensor for path, tensor in compiled.program.states.items()
                                 if paths is None or path in paths)

    def loaded(self) -> None:
        """The same for the tensors of the module, whether this executor is compiled or not."""
        STORE.publish_to_all(tensors_of(self._module))

    @property
    def is_newest(self) -> bool:
        """Whether runs of this program wrote what the host has not got."""
        return self._copies is not None and self._copies.program.is_newest()

    def forget(self) -> None:
        """The program is given up."""
        if self._copies is not None:
            STORE.leave(self._copies.program)
            self._copies = None

"""The different forms that ``step()`` takes: each is captured once, and the host chooses one.

``step()`` may do something else in the first update, every few updates, or from some update on.
"""

import contextlib
import copy
from collections.abc import Iterator

import torch

from poptorch._base.torch_private.basic import plain_access
from poptorch._base.torch_private.fake_tensors import fake_like, is_fake, new_fake_mode
from poptorch._base.torch_private.tracing import own_function_modes
from poptorch._own_step import host_state
from poptorch._own_step.beginning import Beginning, beginning_of
from poptorch._own_step.host_state import Snapshot
from poptorch._own_step.record import Trace, new_trace
from poptorch._own_step.saved_form import SavedForm, difference
from poptorch._own_step.trace import (
    INSTEAD,
    Differs,
    Foreign,
    Restart,
    StepMode,
)
from poptorch.errors import Error, error_at

AHEAD = 12  # updates that are tried before compiling
MOST = 10  # forms of one step()
_PERTURBATION = 2.0**-20


class Variants:
    """The forms of ``step()`` of one optimizer.

    Attributes:
        version: grows with each form that is found; a program has the forms of one version.
        traces: one for each form.
        iterations: the updates of one call of the model.
        begun: the beginnings of the last updates, with their numbers.
        tensors: the state tensors that the device has, by path; the optimizer holds these objects.
        params: the parameters of the optimizer, by name.
        saved: the forms of a program from a file, whose numbers :meth:`step` returns; empty: those
            of :meth:`forms`.
        grads: those of them that have a gradient.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, params: dict[str, torch.Tensor]):
        self.optimizer, self.params = optimizer, params
        self._name = type(optimizer).__name__
        self._names = {id(p): name for name, p in params.items()}
        self._fake_mode = new_fake_mode()
        self._device_places: set = set()
        self._latest = 0
        self.version, self.iterations = 0, 1
        self._beginnings: dict[int, Beginning] = {}  # by identity of the first form
        self.begun: list[tuple] = []
        self.grads: dict[str, torch.Tensor] = {}
        self.traces: list[Trace] = []
        self.tensors: dict[str, torch.Tensor] = {}
        self.saved: list[SavedForm] = []

    def snapshot(self) -> Snapshot:
        others = self._names.keys() | {id(tensor) for tensor in self.tensors.values()}
        return Snapshot(self.optimizer, self._names, others)

    def explore(self, grads: dict[str, torch.Tensor], iterations: int) -> None:
        """Finds the forms of the next updates, ``iterations`` in a call, without changing the
        optimizer."""
        if self.saved:  # they have other numbers in a new program
            self.saved, self.traces, self._beginnings = [], [], {}
            self.version += 1
        self._try(grads, iterations, AHEAD)

    def look_ahead(self) -> None:
        """Finds the forms of the updates of the next call."""
        self._try(self.grads, self.iterations, self.iterations)

    def _try(self, grads: dict[str, torch.Tensor], iterations: int,
             updates: int) -> list[int | None]:
        """The numbers of the forms of the next updates, where they are known."""
        if grads.keys() != self.grads.keys() or iterations != self.iterations:
            self.traces, self.grads, self._beginnings = [], grads, {}
            self.iterations = iterations
        self.take_states()
        before = self.snapshot()
        try:
            return [self.step()[0] for _ in range(updates)]
        finally:
            before.restore()
            self.begun = []

    def adopt(self, layout) -> None:
        """Uses the forms of a program from a file, and its states: the tensors of ``layout``, which
        get the values of the optimizer. Raises a ValueError if the next updates take other forms.
        """
        self.saved, self.tensors = layout.traces, dict(layout.states)
        self.traces, self._beginnings, self.grads = [], {}, {}
        grads = {name: self.params[name] for name in layout.grads}
        self._try(grads, layout.iterations, AHEAD)
        if None in self._try(grads, layout.iterations, layout.iterations):
            other = next(trace for trace in self.forms() if trace.saved is None)
            raise ValueError(f"[setOptimizer] step() of {self._name} calls "
                             f"{difference(other, self.saved)}")
        if any(trace.classes != self.saved[trace.saved].classes
               for trace in self.forms() if trace.saved is not None):
            raise ValueError(f"[setOptimizer] two numbers of step() of {self._name} differ that "
                             f"were equal when the file was written")
        # Other forms of later updates compile the model again when they are taken.
        self.traces = [trace for trace in self.traces if self._last(trace).saved is not None]
        layout.version, layout.params = self.version, self.params

    @contextlib.contextmanager
    def trial(self) -> Iterator[None]:
        """Updates within change nothing: neither the optimizer nor the forms that are known."""
        before = self.snapshot()
        kept = {name: copy.copy(getattr(self, name)) for name in (
            "version", "traces", "_beginnings", "tensors", "_latest", "_device_places")}
        classes = [(trace, trace.classes) for trace in self.traces]
        try:
            yield
        finally:
            before.restore()
            self.begun = []
            vars(self).update(kept)
            for trace, known in classes:
                trace.classes = known

    # -- one update ----------------------------------------------------------------------------

    def step(self) -> tuple[int | None, list[float]]:
        """Runs ``step()`` for one update: the number of its form, and its numbers by class. States
        that the update makes are noted in ``begun``. The number is None for a form that a program
        from a file does not have."""
        before = self.snapshot()
        for index in sorted(range(len(self.traces)), key=lambda index: index != self._latest):
            try:
                numbers = self._run(self.traces[index], is_new=False)
            except (Differs, Restart):
                before.restore()
                continue
            self._latest = index
            trace, numbers = self._later(self.traces[index], numbers)
            number = trace.saved if self.saved else self.forms().index(trace)
            return number, self._by_class(trace, numbers)
        self._record(before)
        return self.step()

    def forms(self) -> list[Trace]:
        """The forms that a program has: all that differ even after the states are created."""
        return [trace for trace in self.traces if id(trace) not in self._beginnings]

    def _last(self, trace: Trace) -> Trace:
        """The form of the program for a form."""
        while id(trace) in self._beginnings:
            trace = self._beginnings[id(trace)].later
        return trace

    def _later(self, trace: Trace, numbers: list[float]) -> tuple[Trace, list[float]]:
        """The form of the program for a form, and the numbers that it has."""
        while (beginning := self._beginnings.get(id(trace))) is not None:
            self.begun.append((beginning, numbers))
            trace, numbers = beginning.later, [numbers[place] for place in beginning.kept]
        return trace, numbers

    def made_states(self) -> dict[str, torch.Tensor]:
        """The states that updates have made, by path, from the parameters before the updates."""
        made = {}
        for beginning, numbers in self.begun:
            made |= beginning.states(self.params, numbers)
        return made

    def take_begun(self) -> list[torch.Tensor]:
        """Computes the states that updates have made, and returns them. It is called once before
        the updates of a call run: states depend on parameters only if a call has one update."""
        made, self.begun = self.made_states(), []
        with torch.no_grad():
            for path, value in made.items():
                self.tensors[path].copy_(value)
        return [self.tensors[path] for path in made]

    def _find_beginnings(self, trace: Trace) -> None:
        for other in self.forms():
            for first, later in ((trace, other), (other, trace)):
                if other is trace or first.saved is not None:  # the program from a file has it
                    continue
                found = beginning_of(first, later)
                if found is not None and not (found.reads_params and self.iterations > 1):
                    self._beginnings[id(first)] = found
                    return

    def _by_class(self, trace: Trace, numbers: list[float]) -> list[float]:
        values = dict(zip(trace.classes, numbers))
        if any(values[one] != number and number == number
               for one, number in zip(trace.classes, numbers)):
            # They were equal so far, and were one number of the program.
            trace.classes = _numbered(zip(trace.classes, numbers))
            self.version += 1
            values = dict(zip(trace.classes, numbers))
        return [values[one] for one in sorted(values)]

    def _run(self, trace: Trace, is_new: bool) -> list[float]:
        written: set[int] = set()
        of_device = {id(tensor) for tensor in self.tensors.values()}
        mode = StepMode(trace, self._fake_mode, self._name, is_new, of_device,
                        self._device_places, written)
        try:
            # The second mode costs time, and is for what is new.
            foreign = Foreign(mode) if is_new else contextlib.nullcontext()
            with own_function_modes(), foreign, mode:
                self.optimizer.step()
        except Restart:
            self._take_written(written)
            raise
        mode.finish(self._put_states(trace))
        return mode.numbers

    def _record(self, before: Snapshot) -> None:
        if len(self.traces) >= MOST:
            raise self._too_many()
        while True:
            trace = new_trace(self.params, self.grads, self.tensors, self._fake_like)
            try:
                numbers = self._run(trace, is_new=True)
                break
            except Restart:
                continue
            finally:
                before.restore()
        # Numbers that are equal now and with other hyper-parameters are one number of the program.
        try:
            self._perturb()
            others = self._run(trace, is_new=False)
        except (Differs, Restart):
            others = numbers
        finally:
            before.restore()
        trace.classes = _numbered(zip(numbers, others))
        self._find_saved(trace)
        self.traces.append(trace)
        self._find_beginnings(trace)
        if trace.saved is None and id(trace) not in self._beginnings:
            self.version += 1

    def _find_saved(self, trace: Trace) -> None:
        """Notes which form of a program from a file a new form is."""
        if self.saved:
            calls = SavedForm.of(trace).calls
            trace.saved = next((number for number, one in enumerate(self.saved)
                                if one.calls == calls
                                and len(one.classes) == len(trace.classes)), None)
        if trace.saved is not None:
            trace.classes = list(self.saved[trace.saved].classes)

    def _fake_like(self, tensor: torch.Tensor) -> torch.Tensor:
        with plain_access():
            return fake_like(self._fake_mode, tensor.detach())

    def _perturb(self) -> None:
        factor = 1.0
        for group in self.optimizer.param_groups:
            for key, value in group.items():
                factor -= _PERTURBATION
                if type(value) is float:
                    group[key] = value * factor
                elif type(value) is tuple and value and all(type(one) is float for one in value):
                    group[key] = tuple(one * (factor - 2.0**-40 * place)
                                       for place, one in enumerate(value))

    def _too_many(self) -> Error:
        one, other = self.traces[-2:]
        calls = next(((a, b) for a, b in zip(one.calls, other.calls)
                      if a.func != b.func or a.template != b.template),
                     (one.calls[-1], other.calls[-1]))
        return error_at(
            f"[optimizer] step() of {self._name} has taken {len(self.traces)} different forms: "
            f"its calls of torch differ in each update, the first time at "
            f"{getattr(calls[1].func, '__name__', '?')}(). Pass numbers that change to arithmetic "
            f"operations on tensors. {INSTEAD}.", calls[1].place)

    # -- states --------------------------------------------------------------------------------

    def take_states(self) -> list[torch.Tensor]:
        """Takes the state tensors that the program put into the optimizer, as after
        ``load_state_dict``; returns those of the device that have new values."""
        written = []
        for path, places in host_state.tensors_of(self.optimizer, self._names).items():
            tensor, own = places[0][0], self.tensors.get(path)
            if tensor is own or own is None and tensor.numel() == 1:
                continue
            if own is None:
                self.tensors[path] = own = tensor if _is_alone(tensor) else tensor.detach().clone()
            elif own.shape != tensor.shape:
                raise Error(f"[load_state_dict] {path} has the shape {tuple(tensor.shape)}, the "
                            f"model needs {tuple(own.shape)}. Load the state of an optimizer of "
                            f"the same model.")
            else:
                with torch.no_grad():
                    own.copy_(tensor)
            written.append(own)
            for _, place in places:
                place.put(own)
        return written

    def _take_written(self, written: set[int]) -> None:
        """Makes numbers of the host that depend on the device states of the device."""
        for path, places in host_state.tensors_of(self.optimizer, self._names).items():
            tensor = places[0][0]
            own = self.tensors.setdefault(path, tensor) if id(tensor) in written else tensor
            if own is not tensor:
                with torch.no_grad():
                    own.copy_(tensor)
                for _, place in places:
                    place.put(own)

    def _put_states(self, trace: Trace) -> dict[str, int]:
        """Puts the optimizer's own tensors where ``step()`` left some without data; returns the
        index of what each has become."""
        found = {}
        for path, places in host_state.tensors_of(self.optimizer, self._names).items():
            tensor = places[0][0]
            index = trace.ids.get(id(tensor))
            if index is None:
                if is_fake(tensor):  # of another trace
                    raise Differs
                continue
            found[path] = index
            own = self.tensors.get(path)
            like = trace.tensors[index]
            if own is None:
                own = self.tensors[path] = torch.zeros(like.shape, dtype=like.dtype)
            if own.shape != like.shape or own.dtype is not like.dtype:
                raise Error(f"[optimizer] step() of {self._name} changes {path} from "
                            f"{tuple(own.shape)} of {own.dtype} to {tuple(like.shape)} of "
                            f"{like.dtype}; a state keeps its shape and type. {INSTEAD}.")
            for _, place in places:
                place.put(own)
        return found


def _is_alone(tensor: torch.Tensor) -> bool:
    """Whether a tensor fills its memory."""
    with plain_access():
        return tensor.is_contiguous() and not tensor.requires_grad \
            and tensor.untyped_storage().nbytes() == tensor.nbytes


def _numbered(keys) -> list[int]:
    """A number for each key, the same for equal ones."""
    numbers: dict = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]

"""Records the torch calls of ``step()``, and compares a later ``step()`` with the record.

``step()`` runs on the host, in Python, for each update. A mode answers its torch calls with tensors
without data. The first time the calls are recorded. Later each call is compared with the recorded
one, which costs a microsecond, and only the numbers of the calls are taken: the device gets them.
"""

from numbers import Integral, Real

import torch

from poptorch._base.layout import memory_of
from poptorch._base.torch_private.basic import pytree
from poptorch._base.torch_private.fake_tensors import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    is_fake,
)
from poptorch._base.torch_private.tracing import DispatchMode, TorchFunctionMode
from poptorch._capture.graph.source_location import Places
from poptorch._own_step.calls import (
    DATA_SET,
    FACTORIES,
    GRAD_GET,
    GRAD_SET,
    METADATA,
    foreach_calls,
    is_random,
    is_written_in_place,
    numbers_taken,
)
from poptorch._own_step.host_state import is_number
from poptorch._own_step.record import Call, Trace
from poptorch.errors import error_at

INSTEAD = "Set options.Training.optimizerOnHost(True), which runs step() on the host"
_NUMBER = ("number",)
_TO_HOST = (torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.tolist)


class Differs(Exception):
    """``step()`` makes other calls than those that were recorded."""


class Restart(Exception):
    """A tensor that was taken for a number of the host depends on the device: begin again."""


class StepMode(TorchFunctionMode):
    """Answers the torch calls of ``step()``. With ``is_new`` it records them in ``trace``, without
    it compares them with the trace and raises :class:`Differs`.

    Attributes:
        numbers: the numbers of the calls, in order.
    """

    def __init__(self, trace: Trace, fake_mode, name: str, is_new: bool, of_device: set[int],
                 device_places: set, numbers_of_device: set):
        super().__init__()
        self.trace, self._grads, self._fake_mode = trace, dict(trace.grads), fake_mode
        self._name, self._is_new, self._next = name, is_new, 0
        self._of_device = of_device
        self._device_places, self._numbers_of_device = device_places, numbers_of_device
        self._made: dict[int, tuple] = {}  # numbers of the host that this step made
        self.numbers: list[float] = []
        self.is_inside = False  # a call is answered
        self._taken: list[float] = []
        self._has_tensor = False

    def finish(self, outputs: dict[str, int]) -> None:
        """Notes, or compares, what the states have become."""
        if self._is_new:
            self.trace.outputs = outputs
        elif self._next != len(self.trace.calls) or outputs != self.trace.outputs:
            raise Differs

    def __torch_function__(self, func, types, args=(), kwargs=None):
        before, self.is_inside = self.is_inside, True
        try:
            return self._answered(func, args, kwargs or {})
        finally:
            self.is_inside = before

    def _answered(self, func, args, kwargs):
        if func == GRAD_GET:
            return self._grads.get(id(args[0]))
        if func in METADATA:
            return func(*args, **kwargs)
        if func == GRAD_SET:
            if self._is_new:
                self._check_gradient(*args)
            self._grads[id(args[0])] = args[1]
            return None
        if func == DATA_SET:
            return self._set_data(*args)
        calls = foreach_calls(func, args, kwargs)
        if calls is not None:
            return [self._called(*call) for call in calls]
        return self._called(func, args, kwargs)

    def _check_gradient(self, parameter, gradient) -> None:
        if gradient is None or (gradient.shape, gradient.dtype) == (parameter.shape,
                                                                    parameter.dtype):
            return
        raise error_at(
            f"[optimizer] step() of {self._name} assigns a gradient of the shape "
            f"{tuple(gradient.shape)} and {gradient.dtype} to a parameter of the shape "
            f"{tuple(parameter.shape)} and {parameter.dtype}. Assign one of the same shape and "
            f"dtype.", Places().here())

    def _called(self, func, args, kwargs):
        if "alpha" in kwargs or "value" in kwargs:
            kwargs = {key: self._as_number(value) if key in ("alpha", "value") else value
                      for key, value in kwargs.items()}
        self._taken, self._has_tensor = [], False
        if not self._is_new and self._next < len(self.trace.calls):
            call = self.trace.calls[self._next]
            if call.func == func and self._fits(call.template[1], args) \
                    and self._fits(call.template[2], kwargs):
                self._next += 1
                self.numbers += self._taken
                return call.result
            self._taken = []
        taken = numbers_taken(func, (*args, *kwargs.values()))
        template = tuple, self._encoded(args, taken), self._encoded(kwargs, taken)
        if not self._has_tensor:
            return self._made_by(func, args, kwargs, template)
        if self._is_new:
            self._check(func, args)
        return self._on_device(func, args, kwargs, template)

    def _as_number(self, value):
        """A number that a call does not take as a tensor: a learning rate may be one."""
        is_ours = isinstance(value, torch.Tensor) and id(value) not in self.trace.ids
        return value.item() if is_ours and is_number(value) else value

    def _on_device(self, func, args, kwargs, template):
        taken = self._taken
        result = self._run(func, args, kwargs)
        found = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        if not found and not (result is None and is_written_in_place(func)):
            if result is None and self._is_new:
                raise self._unknown(func)
            return result
        if not self._is_new:
            raise Differs
        ids = self.trace.ids
        outputs = [ids[id(leaf)] if id(leaf) in ids else self.trace.add(leaf) for leaf in found]
        self.trace.calls.append(Call(func, template, result, outputs, Places().here()))
        self.numbers += taken
        return result

    def _fits(self, template, value) -> bool:
        """Whether a value is what a template says; notes its numbers."""
        if type(template) is int:
            return self.trace.ids.get(id(value)) == template
        kind = template[0]
        if kind is tuple or kind is list:
            if value.__class__ is not kind or len(value) != len(template) - 1:
                return False
            return all(map(self._fits, template[1:], value))
        if kind is dict:
            return value.__class__ is dict and len(value) == len(template) - 1 and all(
                key == name and self._fits(one, other)
                for (name, one), (key, other) in zip(template[1:], value.items()))
        if template == _NUMBER and value.__class__ is not bool and isinstance(value, Real):
            self._taken.append(value)
            return True
        return self._encoded(value, (float, int) if kind == "number" else ()) == template

    def _encoded(self, value, taken: tuple[type, ...]):
        kind = type(value)
        if kind is float or kind is int or isinstance(value, Real) and kind is not bool:
            if (int if isinstance(value, Integral) else float) in taken:
                self._taken.append(value)
                return _NUMBER
            return kind, value
        if isinstance(value, torch.Tensor):
            return self._encoded_tensor(value)
        if kind is list or kind is tuple:
            return kind, *(self._encoded(one, taken) for one in value)
        if kind is dict:
            return dict, *((key, self._encoded(one, taken)) for key, one in value.items())
        if isinstance(value, tuple):
            return kind, *value
        return kind, value

    def _encoded_tensor(self, value: torch.Tensor):
        index = self.trace.ids.get(id(value))
        if index is not None:
            self._has_tensor = True
            return index
        if is_number(value) and id(value) not in self._of_device:
            self._taken.append(value.item())
            return "number", tuple(value.shape), value.dtype
        if not self._is_new:
            raise Differs
        raise error_at(
            f"[optimizer] step() of {self._name} uses a tensor of the shape {tuple(value.shape)} "
            f"that belongs neither to the model nor to the optimizer, so the device does not have "
            f"it. Keep it in optimizer.state or in a parameter group. {INSTEAD}.", Places().here())

    def _made_by(self, func, args, kwargs, template):
        """A call without a tensor of the device: the host computes numbers, and a whole tensor
        that is made is one of the device."""
        if func not in FACTORIES:
            return func(*args, **kwargs)
        with self._fake_mode:
            example = func(*args, **kwargs)
        place = Places().here()
        if example.numel() == 1 and place not in self._device_places:
            made = func(*args, **kwargs)
            self._made[id(made)] = made, place
            return made
        self._check(func, args)
        return self._on_device(func, args, kwargs, template)

    def _run(self, func, args, kwargs):
        """The call on tensors without data."""
        def fake(value):
            index = self.trace.ids.get(id(value))
            return value if index is None else self.trace.tensors[index]

        if func in _TO_HOST:
            raise self._reads_values(func)
        args, kwargs = pytree.tree_map_only(torch.Tensor, fake, (args, kwargs))
        try:
            with torch.no_grad(), self._fake_mode:
                return func(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise self._reads_values(func) from error

    def _reads_values(self, func):
        name = getattr(func, "__name__", str(func))
        return error_at(
            f"[optimizer] step() of {self._name} reads the value of a tensor ({name}), which only "
            f"the device has. Compute with the tensor (torch.where instead of if). {INSTEAD}.",
            Places().here())

    def _unknown(self, func):
        return error_at(
            f"[optimizer] step() of {self._name} calls {getattr(func, '__name__', func)}, which "
            f"is not captured. Use functions of torch that return tensors. {INSTEAD}.",
            Places().here())

    def is_foreign(self, args: tuple) -> bool:
        """Whether an operation with these arguments passes by this mode, with a tensor of the
        device."""
        return not self.is_inside and any(
            id(leaf) in self.trace.ids or is_fake(leaf)
            for leaf in pytree.tree_leaves(args) if isinstance(leaf, torch.Tensor))

    def _check(self, func, args) -> None:
        """Refuses random numbers. A number of the host that is written from a tensor of the device
        is one of the device."""
        if is_random(func):
            raise error_at(
                f"[optimizer] step() of {self._name} draws random numbers "
                f"({func.__name__}), which is not captured. {INSTEAD}.", Places().here())
        if is_written_in_place(func) and isinstance(args[0], torch.Tensor) \
                and id(args[0]) not in self.trace.ids:
            made = self._made.get(id(args[0]))
            if made is not None:
                self._device_places.add(made[1])
            else:
                self._numbers_of_device.add(id(args[0]))
            raise Restart

    def _set_data(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """``p.data = value``: a copy, or nothing where it is the same memory."""
        mine, other = (self.trace.ids.get(id(one)) for one in (tensor, value))
        if mine is None or other is None:
            raise Differs if not self._is_new else error_at(
                f"[optimizer] step() of {self._name} assigns to the `.data` of a tensor that the "
                f"device does not have. {INSTEAD}.", Places().here())
        one, two = self.trace.tensors[mine], self.trace.tensors[other]
        if memory_of(one) != memory_of(two):
            self._called(torch.Tensor.copy_, (tensor, value), {})


class Foreign(DispatchMode):
    """Refuses operations that :class:`StepMode` does not see, as those of ``torch.ops``."""

    def __init__(self, mode: StepMode):
        super().__init__()
        self._mode = mode

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        schema = func._schema
        is_question = not schema.is_mutable and not any(
            "Tensor" in str(one.type) for one in schema.returns)
        if not is_question and self._mode.is_foreign((args, kwargs)):
            raise self._mode._unknown(func)
        return func(*args, **(kwargs or {}))

"""A module with fake tensors in place of its parameters and buffers."""

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch

from poptorch._base import layout
from poptorch._base.logging import logger
from poptorch._base.torch_private import fake_tensors
from poptorch._base.types import check_dense
from poptorch._capture.functions.hooks import of_capture
from poptorch._capture.graph.constant_values import known_value
from poptorch._capture.graph.module_clones import Clones
from poptorch._capture.graph.source_location import Places
from poptorch._capture.library import tensor_nodes
from poptorch._guards.attribute_reads import Origin, Reads
from poptorch._guards.attributes import Attributes
from poptorch._guards.guard import Guard, HeldAttribute
from poptorch.errors import Error, error_at

# Attributes that forward itself sets where they do not fit, of the user's modules.
_managed: "weakref.WeakKeyDictionary[torch.nn.Module, set[str]]" = weakref.WeakKeyDictionary()


@dataclass
class State:
    """One parameter or buffer: where it sits, and the fake tensor that stands for it. ``trained``:
    it gets a gradient, as a buffer does not that ``forward`` changes to a value that requires
    one."""

    kind: str
    name: str
    tensor: torch.Tensor
    persistent: bool
    fake: torch.Tensor
    trained: bool
    aliases: list[str] = field(default_factory=list)
    # (module that holds it, its table there, the key in the table, the dotted path)
    places: list[tuple[torch.nn.Module, dict, str, str]] = field(default_factory=list)


class ModuleState:
    """The parameters and buffers of a module while ``forward`` runs on fake ones.

    ``grouped`` has the paths of parameters whose fake ones lack the first dimension; ``mode_of``
    and ``takes_meta`` are as in :func:`capture`.

    Attributes:
        module: what runs in place of the outermost module, see :mod:`module_clones`.
        states: in the order of the modules; tied ones once.
        names: dotted path of each module, by its identity; of the user's and of what runs.
    """

    def __init__(self, module: torch.nn.Module, fake_mode, places: Places, training: bool,
                 grouped: frozenset[str] = frozenset(),
                 mode_of: Callable[[torch.nn.Module], bool] | None = None,
                 takes_meta: bool = False):
        self._fake_mode = fake_mode
        self._training = training
        self._grouped = grouped
        self._takes_meta = takes_meta
        self._parts: list[torch.nn.Module] = []
        self._modes: list[tuple[torch.nn.Module, bool]] = []
        self.names: dict[int, str] = {}
        self._by_tensor: dict[int, State] = {}
        self._told: set[type] = set()
        paths = list(_all_paths(module))
        self._clones = Clones(list({id(part): part for _, part in paths}.values()))
        self._attributes = Attributes(places, self._clones.by_user())
        self.module, self._user_module = self._clones.of(module), module
        for path, user_part in paths:
            part = self._clones.of(user_part)
            if id(user_part) not in self.names:
                self._attributes.keep(part, path)
                self._parts.append(part)
                if mode_of is not None and hasattr(user_part, "training"):
                    self._modes.append((part, mode_of(user_part)))
            self.names.setdefault(id(user_part), path)
            self.names.setdefault(id(part), path)
            self._collect(part, path)
        self.states = list(self._by_tensor.values())

    def _collect(self, part: torch.nn.Module, path: str) -> None:
        prefix = f"{path}." if path else ""
        for kind, table in (("param", part._parameters), ("buffer", part._buffers)):
            for key, tensor in table.items():
                if tensor is not None:  # as a layer without bias has it
                    persistent = key not in part._non_persistent_buffers_set
                    state = self._add(kind, prefix + key, tensor, persistent)
                    if not any(held is table and k == key for _, held, k, _ in state.places):
                        state.places.append((part, table, key, prefix + key))

    def _add(self, kind, name, tensor, persistent) -> State:
        state = self._by_tensor.get(id(tensor))
        if state is None:
            trained = tensor.requires_grad and self._training
            fake = self._fake(tensor, kind, name, trained)
            state = State(kind, name, tensor, persistent, fake, trained)
            self._by_tensor[id(tensor)] = state
        elif name != state.name:
            state.aliases.append(name)
        return state

    def _fake(self, tensor: torch.Tensor, kind: str, name: str, trained: bool) -> torch.Tensor:
        if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
            raise Error(f"[capture] {name} has no shape yet: its module is lazy. Call the "
                        f"module once on the CPU before it is compiled.")
        if not (self._takes_meta and tensor.is_meta):
            if tensor.device.type != "cpu":
                raise Error(f"[capture] {name}: expected a tensor on the CPU but got one on "
                            f"{tensor.device}. Move the model with .cpu() first.")
            check_dense(tensor, name)
        inner = tensor.detach()[0] if name in self._grouped else tensor
        fake = fake_tensors.fake_like(self._fake_mode, inner)
        if trained and layout.lies_on_itself(inner.shape, inner.stride()):
            raise Error(f"[capture] {name} is to be trained and has sizes {list(inner.shape)} and "
                        f"strides {list(inner.stride())}: several of its elements are one in "
                        f"memory, which no optimizer can update. Make it of a copy, "
                        f"torch.nn.Parameter(value.clone()).")
        if kind == "param":
            fake = torch.nn.Parameter(fake, requires_grad=tensor.requires_grad)
        elif tensor.requires_grad:
            fake.requires_grad_()
        for hook in (tensor._backward_hooks or {}).values() if tensor.requires_grad else ():
            fake.register_hook(of_capture(hook))
        if tensor._post_accumulate_grad_hooks:
            logger.warning("[capture] %s has hooks that run after its gradient is accumulated; "
                           "they have no effect, as the device updates the weights itself. Use "
                           "register_hook to change the gradient.", name)
        self._warn_of_class(type(tensor), kind)
        for attribute, value in tensor.__dict__.items():
            fake.__dict__.setdefault(attribute, value)
        return fake

    def _warn_of_class(self, cls: type, kind: str) -> None:
        is_own = cls.__module__.partition(".")[0] not in ("torch", "poptorch")
        if kind == "param" and is_own and cls not in self._told:
            self._told.add(cls)
            logger.warning("[capture] forward gets torch.nn.Parameter in place of parameters of "
                           "the class %s: isinstance() is False for that class, and its methods "
                           "are missing. Ask for an attribute, which they have too.",
                           cls.__qualname__)

    def __enter__(self):
        for state in self.states:
            for _, table, key, _ in state.places:
                table[key] = state.fake
        self._recurrent = [part for part in self._parts if isinstance(part, torch.nn.RNNBase)
                           and "check_input" not in part.__dict__]
        for part in self._recurrent:
            part.__dict__["check_input"] = partial(_check_recurrent, part)
        self._modes_before = [(part, part.training) for part, _ in self._modes]
        _set_modes(self._modes)
        self._attributes.__enter__()
        return self

    def __exit__(self, *exception):
        for part in self._recurrent:
            del part.__dict__["check_input"]
        # Clones too: an object that forward has stored elsewhere may refer to one.
        for state in self.states:
            for _, table, key, _ in state.places:
                if key in table and table[key] is state.fake:
                    table[key] = state.tensor
        _set_modes(self._modes_before)
        self._attributes.__exit__(*exception)
        self._clones.publish()
        for module, names in self._attributes.managed:
            _managed.setdefault(self._clones.user_module(module), set()).update(names)

    def let_last(self, recorder, nodes: list) -> None:
        """Lets attributes that ``forward`` gives a tensor keep it, where it has the same value in
        each call; ``nodes`` has the placeholder of each state."""
        fixed = {node: state.tensor for state, node in zip(self.states, nodes)
                 if not state.trained and state.name not in self._grouped}

        def value_of(tensor: torch.Tensor) -> torch.Tensor | None:
            if tensor.requires_grad or tensor_nodes.node_of(tensor) in fixed:
                return None
            return known_value(recorder, tensor, fixed, is_noted=False)

        self._attributes.value_of = value_of

    def users(self, value):
        """A method, module or partial function, with the user's modules in place of clones."""
        return self._clones.users(value)

    def attributes_of_users(self):
        """While it is entered, the user's modules have the attributes of their own."""
        return self._attributes.of_users()

    @property
    def reads(self) -> Reads:
        """Notes what ``forward`` reads while it runs."""
        return self._attributes.reads

    def attributes_read(self, origin: Origin = Origin.MODULE) -> list[HeldAttribute]:
        """What ``forward`` depends on of modules, arguments, or what names outside lead to, and of
        the objects that these hold."""
        read = [held._replace(holder=self._clones.user_module(held.holder))
                for held in self._attributes.read[origin]]
        return [held for held in read if not (isinstance(held.holder, torch.nn.Module)
                                              and held.name in _managed.get(held.holder, ()))]

    def keep_outside(self, arguments) -> None:
        """Records what names outside of ``forward`` lead to, before it runs."""
        self._attributes.keep_outside(self._user_module, arguments)

    def guards_outside(self) -> list[Guard]:
        """The guards of what ``forward`` may have read there."""
        return self._attributes.guards_outside()

    def modes_read(self) -> list[torch.nn.Module]:
        """The user's modules whose attribute ``training`` was read by ``forward``."""
        return [self._clones.user_module(part) for part in self.reads.modes.values()
                if id(part) in self.names]

    def name_of_plain(self, tensor: torch.Tensor) -> str | None:
        """The path of the attribute that a plain tensor is, or lies in; None: it is none."""
        return self._attributes.name_of(tensor)

    def warn_of_change(self, tensor: torch.Tensor, place: str) -> None:
        """Warns that ``forward`` changes a plain tensor, at the user's line."""
        self._attributes.warn_of_change(tensor, place)

    def check_trained(self) -> None:
        """Raises an Error when ``forward`` changed what is trained."""
        for state in self.states:
            now = state.fake.requires_grad
            if state.fake.is_leaf and now is not state.trained:
                raise Error(f"[capture] forward gives {state.name} requires_grad={now}, when it "
                            f"was captured it had requires_grad={state.trained}, by which it is "
                            f"decided what is trained. Set it before the model is compiled.")

    def check_hooks(self, accumulation: int, replicas: int) -> None:
        """Raises an Error when a hook would get the gradients of parts of the batch."""
        hooked = [state.name for state in self.states if state.trained
                  and (state.fake._backward_hooks or state.tensor._backward_hooks)]
        if hooked and accumulation * replicas > 1:
            raise Error(f"[capture] {hooked[0]} has a hook on its gradient (register_hook), and "
                        f"gradientAccumulation is {accumulation} and replicationFactor "
                        f"{replicas}: the hook would get the gradient of each micro-batch, not "
                        f"that of the whole batch. Remove the hook, or set both to 1. To limit "
                        f"gradients, use options.Training.gradientClipping.")

    def check_kept(self) -> None:
        """Raises an Error when ``forward`` deleted or re-bound a parameter or buffer, and warns of
        those that it made."""
        self._clones.check_hooks(self.names)
        self._attributes.check_outside()
        fakes = {id(state.fake) for state in self.states}
        known = {(id(table), key) for state in self.states for _, table, key, _ in state.places}
        for part in self._parts:
            made = [key for table in (part._parameters, part._buffers)
                    for key, tensor in table.items()
                    if tensor is not None and (id(table), key) not in known]
            made += [key for key, child in part._modules.items()
                     if child is not None and id(child) not in self.names and any(
                         id(tensor) not in fakes
                         for tensor in (*child.parameters(), *child.buffers()))]
            for key in made:
                self._attributes.warn_of_new(part, self.names[id(part)], key)
        for state in self.states:
            for part, table, key, path in state.places:
                kind = "Buffer" if state.kind == "buffer" else "Parameter"
                line, owner = self._attributes.line(part, key), path.rpartition(".")[0]
                if key not in table or table[key] is None:
                    raise error_at(f"[capture] {kind} {path} is removed from the model when "
                                   f"calling the forward method. Keep it, or remove it before the "
                                   f"model is compiled.", line, owner)
                if table[key] is not state.fake:
                    raise error_at(f"[capture] {kind} {path} is reassigned within the model when "
                                   f"calling the forward method. This is not supported. Consider "
                                   f"using self.{path}.copy_(src) to copy data from a source "
                                   f"tensor to the {kind.lower()}.", line, owner)


def _check_recurrent(layer: torch.nn.RNNBase, x: torch.Tensor, batch_sizes) -> None:
    """The layer's own check of its input, which may have another type than the weights here."""
    type(layer).check_input(layer, x.to(layer.weight_ih_l0.dtype), batch_sizes)


def _set_modes(modes: list[tuple[torch.nn.Module, bool]]) -> None:
    for part, mode in modes:
        part.training = mode


def _all_paths(module: torch.nn.Module, path: str = "", outer: tuple = ()):
    """``(path, module)`` of all modules, once for each path that leads to them."""
    yield path, module
    outer = (*outer, module)
    for name, part in module._modules.items():
        if part is not None and not any(part is one for one in outer):
            yield from _all_paths(part, f"{path}.{name}" if path else name, outer)

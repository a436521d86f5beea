"""What the executor has of a compiled program, and the form of it that a file holds."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from poptorch._base import schema
from poptorch._base.pytree.structure import Structure
from poptorch._base.types import narrowed, pair_sizes, real_dtype, torch_dtype
from poptorch._base.value_snapshot import MISSING, Snapshot, attribute_of, objects_within
from poptorch._capture.graph.captured import OutputSpec
from poptorch._capture.record.in_place_shapes import METHODS
from poptorch._guards.ambient_settings import AmbientSettings
from poptorch._guards.globals_read import guards_without_capture
from poptorch._guards.guard import Guard, HeldAttribute, Kind, table_of
from poptorch._guards.plain_tensors import PlainTensors
from poptorch._optimizer.layout import UpdateLayout
from poptorch._own_step.layout import StepLayout
from poptorch._own_step.on_host import GradientLayout
from poptorch._runtime.arguments import Arguments
from poptorch._translate import Program, StepSpec
from poptorch.errors import Error

# Outputs of these kinds are no results of the call.
_BESIDE = ("anchor", "input_update", "constant_update")
_OUTPUT = tuple | None  # (kind, name, leaf, is_complex)
_FORM = {
    "arguments": dict, "outputs": tuple | None, "inputs": {int: str}, "results": [(str, _OUTPUT)],
    "layouts": {int: ([int | None], int | None)}, "reshaped": {int: [(METHODS, [int | list])]},
    "weights": [str], "tensor_names": [str], "updated": [str],
    "sharding": {str: {str: str}}, "optimizer": dict | None,
    "spec": {str: object}, "attributes": [(str, str, tuple | None)],
    "plain_tensors": {str: str},
    "ambient": (torch.dtype | None, torch.dtype)}


@dataclass
class Interface:
    """How arguments, results and states of a program are those of the user's module.

    Attributes:
        outputs: the structure of what ``forward`` returns.
        attributes: what ``forward`` depends on of modules and of objects that they hold, as
            ``Captured`` has it; of a program that comes from a file, what its module has of it.
        argument_attributes: the same of objects in arguments; unknown for a program from a file.
        outer: the guards of what ``forward`` may read outside of the module; of a program that
            comes from a file, what its code names, with the values at that time.
        plain_tensors: the user's tensors that are compiled in; of a program that comes from a
            file, those in attributes.
        modes: the modules whose attribute ``training`` was read by ``forward``.
        ambient: the settings around the call that compiled it.
    """

    arguments: Arguments
    outputs: Structure
    program: Program
    spec: StepSpec
    attributes: Sequence[HeldAttribute] = ()
    argument_attributes: Sequence[HeldAttribute] = ()
    outer: Sequence[Guard] = ()
    plain_tensors: PlainTensors = field(default_factory=PlainTensors)
    modes: Sequence[torch.nn.Module] = ()
    ambient: AmbientSettings = field(default_factory=AmbientSettings.now)

    def guards(self) -> Iterator:
        """The guards of all that the program depends on except layers and tensors."""
        for one in self.attributes:
            yield from one.guards()
        for one in self.argument_attributes:
            yield from one.guards(Kind.ARGUMENT)
        yield from self.outer
        yield from self.plain_tensors.guards
        yield self.ambient

    def changed_buffers(self) -> list[str]:
        """The paths of the buffers that ``forward`` changes."""
        of_step = own_states(self.program)
        return [path for path, tensor in self.program.states.items()
                if path in self.program.updated and path not in of_step
                and not isinstance(tensor, torch.nn.Parameter)]

    def to_data(self, model: torch.nn.Module) -> dict:
        """This as plain data, tensors and classes, for the module that was compiled."""
        program = self.program
        layout, states = program.optimizer, own_states(program)
        attributes = [one for one in self.attributes if _holder(model, one.path) is one.holder]
        return {
            "arguments": self.arguments.to_data(),
            "outputs": self.outputs.to_data(),
            "inputs": dict(program.inputs),
            "layouts": dict(program.layouts),
            "reshaped": dict(program.reshaped),
            "results": [(stream, None if output is None else
                         (output.kind, output.name, output.leaf, output.is_complex))
                        for stream, output in program.outputs],
            "weights": [path for path in program.states if path not in states],
            "tensor_names": program.tensor_names,
            "updated": sorted(program.updated),
            "sharding": program.sharding,
            "optimizer": None if layout is None else layout.to_data(),
            "spec": dict(vars(self.spec)),
            "attributes": [(one.path, one.name, _plain_value(one.holder, one.name))
                           for one in attributes],
            "plain_tensors": self.plain_tensors.described(
                [*_tensors_in(attributes), *_named(model).items()]),
            "ambient": tuple(self.ambient),
        }

    @classmethod
    def from_data(cls, data: dict, model: torch.nn.Module, spec: StepSpec) -> "Interface":
        """The interface that :meth:`to_data` described, to the tensors of ``model``.

        A ValueError if the data are of another form; an Error if the module lacks a weight of the
        program, or the wrapper requires another program: one of another ``spec``.
        """
        schema.check(data, _FORM, "interface")
        _check_same_spec(spec, StepSpec(**data["spec"]))
        named = _named(model)
        missing = [path for path in data["weights"] if path not in named]
        if missing:
            raise Error(f"[loadExecutable] the file was made from a module with {missing[0]}, "
                        f"which {type(model).__name__} does not have. Wrap a module of the same "
                        f"class and settings.")
        arguments = Arguments.from_data(data["arguments"], model)
        program = Program(None, inputs=dict(data["inputs"]), layouts=dict(data["layouts"]),
                          reshaped=dict(data["reshaped"]))
        program.outputs = [(stream, None if output is None else _output(*output))
                           for stream, output in data["results"]]
        program.states = {path: named[path] for path in data["weights"]}
        program.updated = set(data["updated"])
        program.sharding = data["sharding"]
        program.weight_groups = dict(spec.weight_groups)
        program.tensor_names = data["tensor_names"]
        if data["optimizer"] is not None:
            own = data["optimizer"]
            if "forms" in own:
                program.optimizer = StepLayout.from_data(own, named, spec)
            else:
                kind = GradientLayout if "on_host" in own else UpdateLayout
                program.optimizer = kind.from_data(own, named)
            program.states |= own_states(program)
        attributes = _attributes(data["attributes"], model)
        interface = cls(arguments, Structure.from_data(data["outputs"], "outputs"), program, spec,
                        attributes, outer=guards_without_capture(model),
                        plain_tensors=_plain_tensors(
                            data["plain_tensors"], [*_tensors_in(attributes), *named.items()]),
                        ambient=AmbientSettings(*data["ambient"]))
        interface.outputs.copy_data(())
        interface._check_numbers()
        return interface

    def _check_numbers(self) -> None:
        """Checks that what refers to a leaf, a result or a stream refers to one that is there."""
        outputs = [output for _, output in self.program.outputs if output is not None]
        results = sum(output.kind not in _BESIDE for output in outputs)
        if results != len(self.outputs.paths):
            raise ValueError(f"{results} results for {len(self.outputs.paths)} tensors that "
                             f"forward returns")
        leaves = [output.leaf for output in outputs if output.kind == "input_update"]
        count = len(self.arguments.tensor_leaves())
        for leaf in (*self.program.inputs, *self.program.reshaped, *leaves):
            if not isinstance(leaf, int) or not 0 <= leaf < count:
                raise ValueError(f"tensor {leaf!r} of {count} among the arguments")
        own = self.program.optimizer.streams() if self.program.optimizer else ()
        names = [*self.program.inputs.values(), *(stream for stream, _ in self.program.outputs),
                 *own]
        if len(set(names)) != len(names):
            raise ValueError(f"a stream is used twice, of {', '.join(names)}")

    def check_states(self, executable) -> None:
        """Raises an Error unless each weight of the module has the program's shape and dtype."""
        of_step = own_states(self.program)
        for state in executable.states():
            host = self.program.states.get(state.path)
            if host is None:
                continue
            shape = tuple(host.shape[state.path in self.program.weight_groups:])
            shape = tuple(pair_sizes(shape, host.dtype))
            dtype = real_dtype(host.dtype)
            if state.path not in of_step:
                dtype = narrowed(dtype)
            for own, compiled in ((shape, state.sizes), (dtype, torch_dtype(state.dtype))):
                if own != compiled:
                    raise Error(f"[loadExecutable] {state.path} is {own} in the module and "
                                f"{compiled} in the file. Wrap a module of the same settings.")

    def check_streams(self, executable, call) -> None:
        """Raises a ValueError unless the program's streams have the sizes of the host's tensors."""
        if executable.device_iterations != self.spec.device_iterations:
            raise ValueError(f"{executable.device_iterations} device iterations, not "
                             f"{self.spec.device_iterations}")
        leaves = self.arguments.tensor_leaves()
        streams = {stream.name: stream for stream in executable.streams()}
        given = {stream: (leaves[leaf].shape, leaves[leaf].dtype)
                 for leaf, stream in self.program.inputs.items()}
        own = self.program.optimizer.streams() if self.program.optimizer else {}
        given |= {stream: (sizes, torch.float64) for stream, sizes in own.items()}
        given |= call.result_types()
        for name, stream in streams.items():
            if self.spec.synthetic_data and not stream.is_input:
                continue  # nothing is written to the host
            if name not in given:
                raise ValueError(f"nothing belongs to the stream {name!r}")
            shape, dtype = given[name]
            shape, dtype = pair_sizes(shape, dtype), real_dtype(dtype)
            wanted = executable.host_slices(name) * math.prod(stream.sizes)
            if wanted != math.prod(shape) or torch_dtype(stream.dtype) is not dtype:
                raise ValueError(f"the stream {name!r} is {wanted} elements of {stream.dtype}, "
                                 f"not {math.prod(shape)} of {dtype}")


def own_states(program: Program) -> dict[str, torch.Tensor]:
    """The states of a captured ``step()``, by path in the program: the host has them, too."""
    layout = program.optimizer
    return layout.program_states() if isinstance(layout, StepLayout) else {}


def _output(*data) -> OutputSpec:
    schema.check(data, (str, str, int | None, bool), "a result")
    kind, name, leaf, is_complex = data
    return OutputSpec(kind, name, None, leaf, is_complex=is_complex)


def _check_same_spec(own: StepSpec, compiled: StepSpec) -> None:
    """Raises an Error when a wrapper's options require another program than a file has."""
    for name, value in vars(own).items():
        other = getattr(compiled, name)
        if value != other and name == "keep_gradients":
            place = {True: "within", False: "outside of"}[other]
            raise Error(f"[loadExecutable] the executable was compiled {place} `with "
                        f"poptorch.testing.keep_gradients():`. Load it {place} that.")
        if value != other:
            raise Error(f"[loadExecutable] the executable was compiled with {name}={other}, this "
                        f"wrapper specifies {name}={value}. Wrap the module with the options of "
                        f"the model that was saved, and call the same replicaGrouping().")


# A file can store values of these types, and lists and tuples of them.
_PLAIN = (bool, int, float, str, type(None), torch.dtype)


def _plain_value(holder, name: str) -> tuple | None:
    """What an attribute is, of an object or its class: one value, or none that a file could say.

    None: it is not there, or a method or another object of the class.
    """
    value = table_of(holder, name).get(name, MISSING) if hasattr(holder, "__dict__") else MISSING
    if value is not MISSING:
        return (value,) if _is_plain(value) else ()
    value = attribute_of(holder, name)
    return (value,) if value is not MISSING and _is_plain(value) else None


def _is_plain(value) -> bool:
    items = value if type(value) in (tuple, list) else [value]
    return all(type(item) in _PLAIN for item in items)


def _holder(model: torch.nn.Module, path: str):
    """What has the attribute at a path: a module, or an object in one; None: there is none."""
    found = model
    for name in path.split(".")[:-1]:
        parts = found._modules if isinstance(found, torch.nn.Module) else {}
        found = parts[name] if name in parts else getattr(found, "__dict__", {}).get(name)
    return found


def _attributes(data: list[tuple], model: torch.nn.Module) -> list[HeldAttribute]:
    """The attributes that a program from a file depends on. An Error if one has another value."""
    found = []
    for path, name, was in data:
        if not all(map(_is_plain, was or ())):
            raise ValueError(f"the attribute {path} has a value that is not plain")
        holder = _holder(model, path)
        now = _plain_value(holder, name)
        if Snapshot(was).difference(now, path) is not None:
            raise Error(f"[loadExecutable] {path} was {_words(was)} when the program was compiled, "
                        f"it is {_words(now)}. Wrap a module of the same class and settings.")
        if hasattr(holder, "__dict__"):
            found.append(HeldAttribute(holder, name, path, prefix="self."))
    return found


def _words(value: tuple | None) -> str:
    if value is None:
        return "not there"
    return repr(value[0]) if value else "an object"


def _tensors_in(attributes: Sequence[HeldAttribute]) -> list[tuple[str, torch.Tensor]]:
    """The tensors in attributes, with their paths."""
    return [(place, part) for holder, name, path, *_ in attributes
            if name in table_of(holder, name)
            for place, part in objects_within(table_of(holder, name)[name], path)
            if isinstance(part, torch.Tensor)]


def _named(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The parameters and buffers of a module, by each path."""
    return {**dict(model.named_parameters(remove_duplicate=False)),
            **dict(model.named_buffers(remove_duplicate=False))}


def _plain_tensors(data: dict[str, str], tensors: list[tuple[str, torch.Tensor]]) -> PlainTensors:
    """The tensors of a module whose values are compiled into a program from a file.

    ``data`` has their types and digests by path. An Error if the module has others.
    """
    named = {path: tensor for path, tensor in tensors if path in data}
    known = PlainTensors([(tensor, f"self.{path}") for path, tensor in named.items()])
    own = known.described(named.items())
    for path, text in data.items():
        if own.get(path) != text:
            raise Error(f"[loadExecutable] {path} is not the tensor that it was when the program "
                        f"was compiled, and its values are compiled in as constants. Wrap a module "
                        f"of the same class and settings; or make it a buffer (register_buffer) "
                        f"that forward reads as a tensor, and compile and save the model again.")
    return known

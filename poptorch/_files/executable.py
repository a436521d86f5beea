"""Compiled models in files: what is written, and how it becomes an executor again.

docs/internals/file_format.md describes the members.
"""

import json
from dataclasses import dataclass
from functools import cached_property

import torch

from poptorch._base.layout import bits_of
from poptorch._base.types import torch_dtype
from poptorch._files import archive, description, tensors
from poptorch._files.decode import Decoder
from poptorch._files.encode import Encoder
from poptorch._files.program import ProgramFile, members_of
from poptorch._guards.training_modes import TrainingModes
from poptorch._runtime import runtime_document
from poptorch._runtime.compiled import CompiledModel
from poptorch._runtime.device_memory import read_replicas, write_if_first, write_replicas
from poptorch._runtime.interface import Interface
from poptorch._runtime.run_time_options import check_read
from poptorch._runtime.wrapped import Wrapped
from poptorch._translate import StepSpec
from poptorch.errors import Error
from poptorch.options import Options


@dataclass(frozen=True)
class Contents:
    """A compiled model that is to be written, with the weights of the host.

    With the declared ``groupings``, the file has what is needed to wrap the module again; with
    ``has_random``, it has the state of the random generator.
    """

    wrapped: Wrapped
    compiled: CompiledModel
    groupings: dict | None
    has_random: bool

    @property
    def facts(self) -> dict:
        """The entries of the manifest."""
        return {"training": self.wrapped.training,
                "model_class": type(self.wrapped.user_model).__name__}

    def weights(self) -> dict[str, torch.Tensor]:
        """The parameters and buffers of the module, by path."""
        model = self.wrapped.model
        return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def write(contents: Contents, filename) -> str:
    """Writes a file, and returns its path."""
    weights = contents.weights()
    encoder = Encoder(weights)
    members = {**own_members(contents, encoder), **shared_members(weights, encoder)}
    return archive.write(filename, contents.facts["model_class"], members, contents.facts)


def shared_members(weights: dict[str, torch.Tensor], encoder: Encoder) -> dict[str, bytes]:
    """The tensors that the documents of ``encoder`` name."""
    return _filled({"weights.safetensors": tensors.packed(weights),
                    "tensors.safetensors": tensors.packed(encoder.tensors)})


def own_members(contents: Contents, encoder: Encoder) -> dict[str, bytes]:
    """The members that a program does not share with the other programs of its file."""
    wrapped, compiled, model = contents.wrapped, contents.compiled, contents.wrapped.model
    if compiled.program.host_sites:
        names = ", ".join(sorted({repr(site.name) for site in compiled.program.host_sites}))
        raise Error(f"[save] the program calls functions of the host (poptorch.CPU: {names}), "
                    f"which a file cannot hold. Save the state_dict(), and compile the model again "
                    f"where it is loaded.")
    values = {"interface": compiled.interface.to_data(model), "options": wrapped.options,
              "module": description.of_module(model, wrapped.modes, compiled.interface.modes)}
    if contents.groupings is not None:
        values["model"] = {"model": wrapped.model, "user_model": wrapped.user_model,
                           "optimizer": wrapped.optimizer and wrapped.optimizer.exported(),
                           "groupings": {path: tuple(given) for path, given
                                         in contents.groupings.items()}}
    members = {}
    for name, value in values.items():
        text = json.dumps(encoder.document(value, name), allow_nan=False, separators=(",", ":"))
        members[f"{name}.json"] = text.encode()
    reason, numbers, states = (None, {}, {}) if wrapped.optimizer is None \
        else wrapped.optimizer.fixed_update()
    document = runtime_document.document(wrapped, compiled, numbers, reason)
    members["runtime.json"] = json.dumps(document, allow_nan=False,
                                         separators=(",", ":")).encode()
    if contents.has_random:
        members["rng.json"] = json.dumps(compiled.random.read()).encode()
    members |= members_of(compiled.executable)
    members["state.safetensors"] = tensors.packed({**_device_state(compiled), **states})
    return _filled(members)


def _filled(members: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in members.items() if data}


def _device_state(compiled) -> dict[str, torch.Tensor]:
    """What the host has no copy of, by path; stacked where replicas differ."""
    executable, program = compiled.executable, compiled.program
    out = {}
    for state in executable.states():
        on_host = state.path in program.states
        if state.path == "rng" or (on_host and state.path not in program.updated) \
                or state.path in program.weight_groups:
            continue
        is_same = executable.is_same_in_replicas(state.path)
        if not (on_host and is_same):
            values = read_replicas(executable, state).flatten().view(torch_dtype(state.dtype))
            values = values.view(executable.replicas, *state.sizes)
            out[state.path] = values[0] if is_same else values
    return out


class File(ProgramFile):
    """An opened file of a compiled model, or one program of a bundle, which shares ``decoder``."""

    def __init__(self, filename, contents: tuple[dict, dict[str, bytes]] | None = None,
                 decoder: Decoder | None = None):
        super().__init__(filename, contents or archive.read(filename, archive.MODEL))
        self._decoder = decoder or self.decoder()
        self._state = self._tensors("state.safetensors", in_place=True)

    def decoder(self) -> Decoder:
        """What makes the objects of the file's documents."""
        programs = self.manifest.get("programs", {"": self.manifest})
        # Of weights that no program changes, the module and the device use the file's own pages.
        is_fixed = not any(program["training"] for program in programs.values())
        return Decoder({**self._tensors("weights.safetensors", in_place=is_fixed),
                        **self._tensors("tensors.safetensors")})

    def _tensors(self, name: str, in_place: bool = False) -> dict[str, torch.Tensor]:
        with self.guard(name):
            return tensors.unpacked(self._members.get(name, b""), in_place)

    def __contains__(self, document: str) -> bool:
        return f"{document}.json" in self._members

    def document(self, name: str):
        """The object in ``<name>.json``."""
        member = f"{name}.json"
        with self.guard(member):
            return self._decoder.document(json.loads(self._needed(member)))

    def wrapped(self) -> tuple[dict, dict]:
        """Arguments of an executor's constructor, and the groupings that are declared."""
        parts = self.document("model")
        groupings = parts.pop("groupings", {})
        if not all(isinstance(parts[name], torch.nn.Module) for name in ("model", "user_model")):
            raise ValueError("its module is none")
        return {**parts, "training": parts["optimizer"] is not None}, groupings

    @cached_property
    def options(self) -> Options:
        """The options that the program was compiled with."""
        options = self.document("options")
        with self.guard("options.json"):
            check_read(options)
        return options

    @cached_property
    def _module(self) -> dict:
        with self.guard("module.json"):
            return description.checked(self.document("module"))

    def modes(self) -> dict[str, bool]:
        """Whether layers were compiled in training mode, by path."""
        return {layer["path"]: layer["training"] for layer in self._module["layers"]}

    def interface(self, model: torch.nn.Module, spec: StepSpec, modes: TrainingModes) -> Interface:
        """The host's side of the program, bound to a module, for a wrapper."""
        with self.guard("module.json"):
            asked = description.check(self._module, model, modes, spec.training)
        with self.guard("interface.json"):
            interface = Interface.from_data(self.document("interface"), model, spec)
            interface.modes = asked
            return interface

    def restore_rng_state(self, random) -> None:
        """Sets the state of the random generator, where it was saved."""
        if "rng" in self:
            with self.guard("rng.json", is_its_fault=True):
                random.write(json.loads(self._members["rng.json"]))

    def write_state(self, compiled: CompiledModel, *, with_optimizer: bool) -> None:
        """Puts into the program what only the device had."""
        executable = compiled.executable
        states = {state.path: state for state in executable.states()}
        with self.guard("state.safetensors", is_its_fault=True):
            for path, value in self._state.items():
                state = states[path]
                is_of_step = state.role == "optimizer" and path in compiled.program.states
                if is_of_step or state.role == "optimizer" and not with_optimizer:
                    continue  # the host has the states of a captured step()
                if value.dim() == len(state.sizes):  # the same in all replicas
                    executable.write_state(path, value.data_ptr(), value.nbytes)
                    continue
                values = bits_of(value).view(executable.replicas, state.bytes)
                write = write_if_first if path in compiled.program.states else write_replicas
                write(executable, state, values)

"""Compiled models in files: what is written, and how it becomes an executor again.

docs/internals/file_format.md describes the members.
"""

import contextlib
import json

import torch

from poptorch import _C
from poptorch._base import schema
from poptorch._base.layout import bits_of
from poptorch._base.types import torch_dtype
from poptorch._device.busy import Busy
from poptorch._files import archive, description, problems, tensors
from poptorch._files.decode import Decoder
from poptorch._files.encode import Encoder
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

# Those before the plan: their texts, for readers.
_STEPS = ("translate", "rewrite", "place", "lower", "schedule")

# A row of the partition.
_SHARE = {"blocks": [str], "modules": [str], "parameters": [str], **dict.fromkeys(
    ("ipu", "stage", "phase", "parameter_elements", "parameter_bytes", "ops", "copied_bytes"), int)}


def write(wrapped: Wrapped, compiled: CompiledModel, filename, *, groupings: dict | None,
          has_random: bool) -> str:
    """Writes a compiled model, with the weights of the host, to a file; returns the file's path.

    With the declared ``groupings``, the file has what is needed to wrap the module again; with
    ``has_random``, it has the state of the random generator.
    """
    model = wrapped.model
    if compiled.program.host_sites:
        names = ", ".join(sorted({repr(site.name) for site in compiled.program.host_sites}))
        raise Error(f"[save] the program calls functions of the host (poptorch.CPU: {names}), "
                    f"which a file cannot hold. Save the state_dict(), and compile the model again "
                    f"where it is loaded.")
    executable = compiled.executable
    weights = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    encoder = Encoder(weights)
    values = {"interface": compiled.interface.to_data(model), "options": wrapped.options,
              "module": description.of_module(model, wrapped.modes, compiled.interface.modes)}
    if groupings is not None:
        values["model"] = {"model": wrapped.model, "user_model": wrapped.user_model,
                           "optimizer": wrapped.optimizer and wrapped.optimizer.exported(),
                           "groupings": {path: tuple(given) for path, given in groupings.items()}}
    members = {}
    for name, value in values.items():
        text = json.dumps(encoder.document(value, name), allow_nan=False, separators=(",", ":"))
        members[f"{name}.json"] = text.encode()
    members["runtime.json"] = json.dumps(runtime_document.document(wrapped, compiled),
                                         allow_nan=False, separators=(",", ":")).encode()
    if has_random:
        members["rng.json"] = json.dumps(compiled.random.read()).encode()
    members |= {f"{step}.ir": executable.ir(step).encode() for step in executable.steps()}
    members["partition.json"] = json.dumps(executable.shares(), separators=(",", ":")).encode()
    members["constants.safetensors"] = executable.constants()
    members["weights.safetensors"] = tensors.packed(weights)
    members["state.safetensors"] = tensors.packed(_device_state(compiled))
    members["tensors.safetensors"] = tensors.packed(encoder.tensors)
    facts = {"training": wrapped.training, "model_class": type(wrapped.user_model).__name__}
    members = {name: data for name, data in members.items() if data}
    return archive.write(filename, facts["model_class"], members, facts)


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
            values = read_replicas(executable, state).view(torch_dtype(state.dtype))
            values = values.view(executable.replicas, *state.sizes)
            out[state.path] = values[0] if is_same else values
    return out


class File:
    """An opened file: checked, and not yet believed."""

    def __init__(self, filename):
        self.path = filename
        self.manifest, self._members = archive.read(filename)
        self._decoder = Decoder({**self._tensors("weights.safetensors"),
                                 **self._tensors("tensors.safetensors")})
        self._state = self._tensors("state.safetensors")

    @contextlib.contextmanager
    def guard(self, member: str, *, is_its_fault: bool = False):
        """Turns whatever strange contents lead to into an error that names file and ``member``.

        With ``is_its_fault`` an Error, too, can only come from the member's contents. Others are
        the user's, or this machine is too small; they only get the name of the file.
        """
        try:
            yield
        except Busy:  # no fault of the file, and waited for
            raise
        except Exception as error:
            text = str(error)
            if not isinstance(error, Error) or (is_its_fault and str(self.path) not in text):
                raise problems.unreadable(self.path, member, error) from error
            where, _, what = text.partition("] ")
            if str(self.path) in text or not what:
                raise
            raise Error(f"{where}] {self.path}: {what}") from error

    def _tensors(self, name: str) -> dict[str, torch.Tensor]:
        with self.guard(name):
            return tensors.unpacked(self._members.get(name, b""))

    def _text(self, name: str) -> str:
        with self.guard(name):
            return self._needed(name).decode()

    def _needed(self, name: str) -> bytes:
        if name not in self._members:
            raise problems.damaged(self.path, f"it has no {name}")
        return self._members[name]

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

    def options(self) -> Options:
        """The options that the program was compiled with."""
        options = self.document("options")
        with self.guard("options.json"):
            check_read(options)
        return options

    def modes(self) -> dict[str, bool]:
        """Whether layers were compiled in training mode, by path."""
        with self.guard("module.json"):
            return description.modes_in(self.document("module"))

    def interface(self, model: torch.nn.Module, spec: StepSpec, modes: TrainingModes) -> Interface:
        """The host's side of the program, bound to a module, for a wrapper."""
        with self.guard("module.json"):
            asked = description.check(self.document("module"), model, modes, spec.training)
        with self.guard("interface.json"):
            interface = Interface.from_data(self.document("interface"), model, spec)
            interface.modes = asked
            return interface

    def executable(self, options: dict):
        """The program itself, with kernels of this machine; its states hold zeros."""
        name = "constants.safetensors"
        with self.guard(name, is_its_fault=True):
            constants = self._members.get(name)
            stored = _C.unpack_constants(constants, name) if constants else None
        with self.guard("partition.json"):
            shares = json.loads(self._needed("partition.json"))
            schema.check(shares, [_SHARE], "partition")
        texts = [(step, self._text(f"{step}.ir")) for step in _STEPS
                 if f"{step}.ir" in self._members]
        text = self._text("plan.ir")
        with self.guard("plan.ir"):
            try:
                return _C.assemble_text(text, options, stored, texts, shares)
            except Error as error:
                # This machine is too small, its environment lacks something, or the
                # library of a custom op is not loaded.
                if error.message.startswith(("[run]", "[compile] POPTORCH_", "[POPTORCH_",
                                             "[custom_op]")):
                    raise
                raise problems.unreadable(self.path, "plan.ir", error) from error

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
                if state.role == "optimizer" and not with_optimizer:
                    continue
                if value.dim() == len(state.sizes):  # the same in all replicas
                    executable.write_state(path, value.data_ptr(), value.nbytes)
                    continue
                values = bits_of(value).view(executable.replicas, state.bytes)
                write = write_if_first if path in compiled.program.states else write_replicas
                write(executable, state, values)

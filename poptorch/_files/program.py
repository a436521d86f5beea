"""The program in a file: which members it is, and how they become an executable again."""

import contextlib
import json
import re

import torch

from poptorch import _C
from poptorch._base import schema
from poptorch._device.busy import Busy
from poptorch._files import problems
from poptorch.errors import Error

# Those before the plan: their texts, for readers.
_STEPS = ("translate", "rewrite", "place", "lower", "schedule")

# A row of the partition.
_SHARE = {"blocks": [str], "modules": [str], "parameters": [str], **dict.fromkeys(
    ("ipu", "stage", "phase", "parameter_elements", "parameter_bytes", "ops", "copied_bytes"), int)}

_MISSING = "PyTorch has no operator of this name"
_OPERATOR = re.compile(r"\[(\w+::[\w.]+)\] (.*)", re.DOTALL)


def members_of(executable) -> dict[str, bytes]:
    """The members that hold a program."""
    texts = {f"{step}.ir": executable.ir(step).encode() for step in executable.steps()}
    return {**texts, "constants.safetensors": executable.constants(),
            "partition.json": json.dumps(executable.shares(), separators=(",", ":")).encode()}


class ProgramFile:
    """An opened file of some kind that has a program: checked, and not yet believed."""

    def __init__(self, path, contents: tuple[dict, dict[str, bytes]]):
        self.path = path
        self.manifest, self._members = contents

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

    def executable(self, options: dict, is_proved: bool = False):
        """The program itself, with kernels of this machine; its states hold zeros.

        ``is_proved``: its plan is what this build made and checked.
        """
        name = "constants.safetensors"
        with self.guard(name, is_its_fault=True):
            constants = self._members.get(name)
            stored = _C.unpack_constants(bytes(constants), name) if constants else None
        with self.guard("partition.json"):
            shares = json.loads(bytes(self._needed("partition.json")))
            schema.check(shares, [_SHARE], "partition")
        texts = [(step, self._text(f"{step}.ir")) for step in _STEPS
                 if f"{step}.ir" in self._members]
        text = self._text("plan.ir")
        with self.guard("plan.ir"):
            try:
                return _C.assemble_text(text, options, stored, texts, shares, is_proved)
            except Error as error:
                raise self._other_cause(error) or problems.unreadable(
                    self.path, "plan.ir", error) from error

    def _other_cause(self, error: Error) -> Error | None:
        """What to raise where the file need not be at fault; None: it is."""
        # This machine is too small, its environment lacks something, or the library of a custom op
        # is not loaded.
        if error.message.startswith(("[run]", "[compile] POPTORCH_", "[POPTORCH_", "[custom_op]")):
            return error
        written, own = self.manifest["torch_version"], str(torch.__version__)
        operator = _OPERATOR.match(error.message)
        if operator is None:
            return None
        name, why = operator.groups()
        if why.startswith(_MISSING):
            return Error(f"[load] {self.path} was written with torch {written:.40} and calls "
                         f"{name}, an operator that torch {own} does not have. Import the library "
                         f"that registers it, or export the model again with this version of "
                         f"torch.")
        if written != own:
            return Error(f"[load] {self.path} was written with torch {written:.40} and calls "
                         f"{name}, which torch {own} refuses: {why.partition('. ')[0]}. Load it "
                         f"with that version, or export the model again.")
        return None

    def _text(self, name: str) -> str:
        with self.guard(name):
            return str(self._needed(name), "utf-8")

    def _needed(self, name: str) -> bytes | memoryview:
        if name not in self._members:
            raise problems.damaged(self.path, f"it has no {name}")
        return self._members[name]

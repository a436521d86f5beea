"""Where in the user's program a node comes from: file and line, module path, recomputation."""

import os
import sys
import sysconfig

import torch

from poptorch._base.extension_check import PACKAGE

_OURS = str(PACKAGE) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_STANDARD = sysconfig.get_paths()["stdlib"] + os.sep
_PACKAGES = ("site-packages" + os.sep, "dist-packages" + os.sep)
_CHECKPOINT = os.path.join(_TORCH, "utils", "checkpoint.py")
# The file that calls the user's forward and the backward pass: outside of it is the caller.
_DRIVER = os.path.join(_OURS, "_capture", "tracing.py")

_SKIPPED, _USER, _RECOMPUTES, _OUTSIDE = range(4)


def is_torchs(file: str) -> bool:
    """Whether a source file is torch's or ours."""
    return file.startswith((_OURS, _TORCH))


def is_ours(file: str) -> bool:
    """Whether a source file is of this package."""
    return file.startswith(_OURS)


def is_pythons(file: str) -> bool:
    """Whether a source file is of Python's standard library, or none at all."""
    is_standard = file.startswith(_STANDARD) and not is_packaged(file)
    return is_standard or file.startswith(("<frozen ", "<eval_with_key>"))


def is_packaged(file: str) -> bool:
    """Whether a source file belongs to an installed package."""
    return any(part in file for part in _PACKAGES)


def _kind(file: str, excludes) -> int:
    if file == _DRIVER:
        return _OUTSIDE
    if file == _CHECKPOINT:
        return _RECOMPUTES
    if file.startswith(_OURS) or is_pythons(file):
        return _SKIPPED
    return _SKIPPED if any(part in file for part in excludes) else _USER


class Places:
    """Finds places by walking the stack. Files that contain one of ``excludes`` are not the
    user's."""

    def __init__(self, excludes=(_TORCH,)):
        self._excludes = tuple(excludes)
        self._kinds: dict[str, int] = {}
        self._recomputation = None
        self._recomputations = 0

    def here(self) -> tuple[str, int] | None:
        """``(file, line)`` of the innermost frame of the user's; None if there is none."""
        for kind, frame in self._frames():
            if kind == _USER:
                return frame.f_code.co_filename, frame.f_lineno
        return None

    def of_caller(self) -> tuple[str, int] | None:
        """The same, but that of the model's call if ``forward`` has none."""
        for kind, frame in self._frames(is_bounded=False):
            if kind == _USER:
                return frame.f_code.co_filename, frame.f_lineno
        return None

    def of_frames(self, frames: list) -> tuple[str, int] | None:
        """The innermost place of the user's among ``(frame, instruction, line)`` of a traceback,
        from the user's ``forward`` on."""
        for frame, _, line in reversed(frames):
            kind = self._kind(frame)
            if kind == _USER:
                return frame.f_code.co_filename, line
            if kind == _OUTSIDE:
                return None
        return None

    def in_backward(self) -> tuple[tuple[str, int] | None, int]:
        """The place, and the number of the recomputation that it is part of (0 for none). User's
        code runs in the backward pass where a checkpoint recomputes, and in autograd.Functions."""
        place = checkpoint = None
        for kind, frame in self._frames():
            is_torch = frame.f_code.co_filename.startswith(_TORCH)
            if kind == _USER and place is None and not is_torch:
                place = frame.f_code.co_filename, frame.f_lineno
            elif kind == _RECOMPUTES:
                checkpoint = frame
        return place, 0 if checkpoint is None else self._number(checkpoint)

    def is_under_checkpoint(self) -> bool:
        """Whether the present function runs under torch.utils.checkpoint."""
        return any(kind == _RECOMPUTES for kind, _ in self._frames())

    def _frames(self, is_bounded: bool = True):
        """Kind and frame of those on the stack, the innermost first; those of the caller of the
        model only if it is not bounded."""
        frame = sys._getframe(1)
        while frame is not None:
            kind = self._kind(frame)
            if kind == _OUTSIDE and is_bounded:
                return
            yield kind, frame
            frame = frame.f_back

    def _kind(self, frame) -> int:
        file = frame.f_code.co_filename
        kind = self._kinds.get(file)
        if kind is None:
            kind = self._kinds[file] = _kind(file, self._excludes)
        return kind

    def _number(self, checkpoint) -> int:
        """Recomputations are distinguished by the outermost frame of torch.utils.checkpoint."""
        if checkpoint is not self._recomputation:
            self._recomputation = checkpoint
            self._recomputations += 1
        return self._recomputations

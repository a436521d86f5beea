"""Which layers are in training mode, as it was when the module was wrapped."""

import weakref
from collections.abc import Iterable
from typing import Self

import torch

from poptorch._base.logging import logger
from poptorch._capture.module_state import has_mode

# Those of all executors that are alive: each switches the module back and forth for itself.
_all: "weakref.WeakSet[TrainingModes]" = weakref.WeakSet()

_WORDS = {True: "training mode", False: "evaluation mode"}


class TrainingModes:
    """The ``training`` flag of every layer of a module, kept apart from the module's own.

    A program may switch the module back and forth after it has wrapped it; what is compiled is what
    it was at the time of wrapping, or what the executor's ``train()`` and ``eval()`` said since.
    """

    def __init__(self, module: torch.nn.Module):
        self._module = module
        self._note()
        _all.add(self)

    def train(self, mode: bool = True) -> Self:
        """Puts the module into training mode: what the next compilation uses.

        A module that changes its mode after it was wrapped, other than by this method and
        :meth:`eval`, is compiled as it was when it was wrapped, with a warning. A program that is
        compiled stays as it is until :meth:`destroy`.

        Args:
            mode: True for training mode, False for evaluation mode.

        Returns:
            This executor.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Dropout(0.5), opts)
            >>> model.train().training, model.model.training
            (False, True)
        """
        self._module.train(mode)
        self._note()
        return self

    def eval(self) -> Self:
        """Puts the module into evaluation mode, see :meth:`train`.

        Returns:
            This executor.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Dropout(0.5), opts)
            >>> model.eval()(torch.ones(2))
            tensor([1., 1.])
        """
        return self.train(False)

    def _note(self) -> None:
        """Takes the flags that the layers have now."""
        self._modes = weakref.WeakKeyDictionary(
            (part, part.training) for part in self._module.modules() if has_mode(part))

    def by_path(self) -> dict[str, bool]:
        """The flags, for :meth:`take`."""
        return {path: self.mode_of(part) for path, part in self._module.named_modules()}

    def take(self, modes: dict[str, bool]) -> None:
        """Takes the flags that layers had elsewhere, by path."""
        for path, part in self._module.named_modules():
            if path in modes:
                self._modes[part] = modes[path]

    def mode_of(self, part: torch.nn.Module) -> bool:
        """The noted flag of a layer; of one that came later its own."""
        return self._modes.get(part, getattr(part, "training", False))

    def are_of_another(self, part: torch.nn.Module, mode: bool) -> bool:
        """Whether another executor has noted a flag for a layer of this one."""
        return any(other is not self and other._modes.get(part) == mode for other in list(_all))


class CompiledModes:
    """The modes that a program was compiled with, of the layers whose mode ``forward`` read.

    A layer that is in another mode is no error, only a warning, and only the first time: programs
    evaluate a module on the host between the calls of its executor.

    Args:
        module: the module.
        asked: the layers of which ``forward`` read the mode.
        modes: what they were compiled with.
    """

    def __init__(self, module: torch.nn.Module, asked: Iterable[torch.nn.Module],
                 modes: TrainingModes):
        asked = set(map(id, asked))
        self._noted = modes
        # Those of TorchScript have their flag in C++.
        self._compiled = [(path, part, modes.mode_of(part)) for path, part in module.named_modules()
                          if id(part) in asked and "training" in vars(part)]

    def places(self) -> list[tuple[dict, str]]:
        """Where the modes are that :meth:`warn` compares: tables and the key in them."""
        return [(vars(part), "training") for _, part, _ in self._compiled]

    def warn(self) -> None:
        """Warns of layers that are in another mode now, for which no other executor is a reason."""
        changed = [(path, part, mode) for path, part, mode in self._compiled
                   if part.training != mode
                   and not self._noted.are_of_another(part, part.training)]
        if not changed:
            return
        self._compiled = []
        path, part, mode = changed[0]
        more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
        is_noted = all(self._noted.mode_of(part) == part.training for _, part, _ in changed)
        logger.warning(
            "[train] %s%s was compiled in %s%s, and is in %s now: the compiled model computes as "
            "before. %s", f"{type(part).__name__} {path}".rstrip(), more, _WORDS[mode],
            "" if is_noted else ", the mode when it was wrapped", _WORDS[part.training],
            "Call destroy(), and the next call compiles the module in its present mode." if is_noted
            else "To use the present mode, call destroy() and wrap the module again; to keep the "
            "compiled one, set it back before the call.")

"""Which layers are in training mode, as it was when the module was wrapped."""

import weakref
from collections.abc import Iterable
from functools import partial
from typing import Self

import torch

from poptorch._base.logging import logger
from poptorch._guards.guard import Guard

# Of all executors that are alive: each switches the module back and forth for itself.
_all: "weakref.WeakSet[TrainingModes]" = weakref.WeakSet()

_DROPOUT = (torch.nn.Dropout, torch.nn.Dropout1d, torch.nn.Dropout2d, torch.nn.Dropout3d,
            torch.nn.AlphaDropout, torch.nn.FeatureAlphaDropout)
_WORDS = {True: "training mode", False: "evaluation mode"}


class TrainingModes:
    """The ``training`` flag of every layer when the module was wrapped, or when the executor's
    ``train()`` or ``eval()`` was called since: programs switch the module itself back and forth."""

    def __init__(self, module: torch.nn.Module):
        self._module = module
        self.is_chosen = False  # by train() or eval(), or told of
        self._note()
        _all.add(self)

    def train(self, mode: bool = True) -> Self:
        """Puts the module into training mode, also for the next call of this executor.

        The next call runs a program that was compiled for that mode; it compiles one if there is
        none yet. A module that changes its mode after it was wrapped, other than by this method
        and :meth:`eval`, runs as it was when it was wrapped, with a warning.

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
        self.is_chosen = True
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
            (part, part.training) for part in self._module.modules() if hasattr(part, "training"))

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


class CompiledModes:
    """The modes that a program was compiled with, of the layers whose mode ``forward`` read.

    A layer that the user switched otherwise than by the executor stays as it was, with a warning
    the first time: programs evaluate a module on the host between the calls of its executor.
    """

    def __init__(self, module: torch.nn.Module, asked: Iterable[torch.nn.Module],
                 modes: TrainingModes):
        asked = set(map(id, asked))
        self._noted = modes
        # Those of TorchScript have their flag in C++.
        self._compiled = [(path, part, modes.mode_of(part)) for path, part in module.named_modules()
                          if id(part) in asked and "training" in vars(part)]

    def guards(self) -> list[Guard]:
        """The guards of what the executor's ``train()`` and ``eval()`` say."""
        place = vars(self._noted), "_modes"
        return [Guard(f"self.{path}.training".replace("..", "."),
                      partial(self._noted.mode_of, part), [place])
                for path, part, _ in self._compiled]

    def warn_of_dropout(self) -> None:
        """Warns once that inference drops values, unless the executor's ``train()`` chose it."""
        found = [(path, part) for path, part, mode in self._compiled
                 if mode and isinstance(part, _DROPOUT) and part.p > 0]
        if not found or self._noted.is_chosen:
            return
        self._noted.is_chosen = True
        path, part = found[0]
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        logger.warning("[inferenceModel] %s%s is in training mode and drops values. Call eval() on "
                       "the executor to turn dropout off, or train() to keep it without this "
                       "warning.",
                       f"{type(part).__name__} {path}".rstrip(), more)

    def places(self) -> list[tuple[dict, str]]:
        """Where the modes are that :meth:`warn` compares: tables and the key in them."""
        return [(vars(part), "training") for _, part, _ in self._compiled]

    def warn(self) -> None:
        """Warns of layers that are in another mode now, for which no other executor is a reason."""
        changed = [(path, part, mode) for path, part, mode in self._compiled
                   if part.training != mode and not any(
                       other._modes.get(part) == part.training for other in list(_all)
                       if other is not self._noted)]
        if not changed:
            return
        self._compiled = []
        path, part, mode = changed[0]
        more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
        logger.warning(
            "[train] %s%s runs in %s, for which it was compiled, and is in %s now: the compiled "
            "model computes as before. Call train() or eval() of the executor to change its mode.",
            f"{type(part).__name__} {path}".rstrip(), more, _WORDS[mode], _WORDS[part.training])

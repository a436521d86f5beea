"""Which layers are in training mode, as it was when the module was wrapped."""

import weakref

import torch

from poptorch._capture.module_state import has_mode


class TrainingModes:
    """The ``training`` flag of every layer of a module, kept apart from the module's own.

    A program may switch the module back and forth after it has wrapped it; what is compiled is what
    it was at the time of wrapping, or what the executor's ``train()`` and ``eval()`` said since.
    """

    def __init__(self, module: torch.nn.Module):
        self._module = module
        self.note()

    def note(self) -> None:
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

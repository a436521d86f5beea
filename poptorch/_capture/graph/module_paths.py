"""Passes the recorder which module runs."""

import threading

import torch
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)


class ModulePaths:
    """While it is entered, ``recorder.module`` is the dotted path of the module that runs;
    ``names`` has the paths by the identity of the modules."""

    def __init__(self, names: dict[int, str], recorder):
        self._names = names
        self._recorder = recorder
        self._stack: list[tuple[torch.nn.Module, str]] = []
        self._thread = threading.get_ident()

    @property
    def running(self) -> torch.nn.Module | None:
        """The innermost module that runs."""
        return self._stack[-1][0] if self._stack else None

    def __enter__(self):
        self._handles = (register_module_forward_pre_hook(self._begin),
                         register_module_forward_hook(self._end, always_call=True))
        return self

    def __exit__(self, *exception):
        for handle in self._handles:
            handle.remove()

    def _begin(self, module, args):
        if threading.get_ident() == self._thread:
            self._stack.append((module, self._recorder.module))
            name = self._names.get(id(module))
            if name is not None:
                self._recorder.module = name

    def _end(self, module, args, result):
        if threading.get_ident() != self._thread:
            return
        # A module that raised may have left its name; the one that ends now is further out.
        while self._stack:
            ended, outer = self._stack.pop()
            self._recorder.module = outer
            if ended is module:
                return

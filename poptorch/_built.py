"""Says what to do where the extension of the package was not built, or not for this PyTorch."""

import importlib
import os

import torch  # noqa: F401  (the extension needs its libraries)

try:
    importlib.import_module("poptorch._C")
except ImportError as error:
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    raise ImportError(
        f"[poptorch] the extension poptorch._C is not built for this Python and PyTorch "
        f"({error}). Run `make build` in {folder}, or install the wheel.") from error

"""Says what to do where the extension of the package was not built, or not for this PyTorch."""

import importlib
import os

import torch  # noqa: F401  (the extension needs its libraries)

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_TO_DO = f"Run `make build` in {os.path.dirname(_PACKAGE)}, or install the wheel."

try:
    _file = importlib.import_module("poptorch._C").__file__
except ImportError as error:
    raise ImportError(f"[poptorch] the extension poptorch._C is not built for this Python and "
                      f"PyTorch ({error}). {_TO_DO}") from error
# The finder of an editable installation finds the extension of the checkout that is installed.
if not os.path.samefile(os.path.dirname(_file), _PACKAGE):
    raise ImportError(f"[poptorch] the extension poptorch._C is not built: {_file} is that of "
                      f"another checkout than {_PACKAGE}. {_TO_DO}")

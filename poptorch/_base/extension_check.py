"""Finds the extension that is built for this PyTorch; says what to do where there is none.

torch changes its C++ interface in each minor release. A wheel has an extension for each supported
one, a checkout that of the torch it was built with: ``lib/torch2_13/_C*.so`` for torch 2.13.
"""

import importlib.util
import sys
import sysconfig
from pathlib import Path

import torch

SUPPORTED = ("2.13", "2.14", "2.15")
RELEASE = ".".join(torch.__version__.split(".")[:2])

# As the frames of its files name it: not where links lead to.
PACKAGE = Path(__file__).absolute().parents[1]
_FOLDER = PACKAGE / "lib" / f"torch{RELEASE.replace('.', '_')}"
_FILE = f"_C{sysconfig.get_config_var('EXT_SUFFIX')}"


def listed(releases) -> str:
    """``2.13, 2.14 and 2.15``."""
    *others, last = releases
    return f"{', '.join(others)} and {last}" if others else last


def _to_do(releases: list[str]) -> str:
    """What helps, where the package is built for these releases of torch."""
    if (PACKAGE.parent / "setup.py").exists():
        return f"Run `make build` in {PACKAGE.parent}, or install the wheel."
    if not releases:
        return "Install the wheel again, or build poptorch from its sources."
    following = int(releases[-1].split(".")[1]) + 1
    return f"Run `pip install \"torch>={releases[0]},<2.{following}\"`."


def _import() -> None:
    built = sorted((path.parent.name.removeprefix("torch").replace("_", ".")
                    for path in PACKAGE.glob(f"lib/torch*/{_FILE}")),
                   key=lambda release: [int(number) for number in release.split(".")])
    if RELEASE not in built:
        found = f"only for torch {listed(built)}" if built else "for no release of torch"
        raise ImportError(f"[poptorch] the extension poptorch._C is not built for torch "
                          f"{torch.__version__}, {found}. {_to_do(built)}")
    spec = importlib.util.spec_from_file_location("poptorch._C", _FOLDER / _FILE)
    try:
        extension = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(extension)
    except ImportError as error:
        raise ImportError(f"[poptorch] the extension {_FOLDER / _FILE} does not load with torch "
                          f"{torch.__version__} ({error}). {_to_do(built)}") from error
    sys.modules["poptorch._C"] = sys.modules["poptorch"]._C = extension


_import()

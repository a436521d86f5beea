"""Every private name of torch that poptorch uses exists; where it does not, the name is said."""

import importlib

import torch

from tests.drift.__main__ import used_names


def _exists(dotted: str) -> bool:
    """Whether a module has a name; the longest part that can be imported is the module."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for name in parts[length:]:
            if not hasattr(found, name):
                return False
            found = getattr(found, name)
        return True
    return False


def test_every_name_exists():
    missing = [name for name in used_names() if not _exists(name)]
    assert not missing, f"torch {torch.__version__} lacks {missing}"


def test_a_name_that_is_missing_is_found():
    assert _exists("torch._ops.OpOverload") and not _exists("torch._ops.NoSuchName")
    assert _exists("torch._C._functorch.peek_interpreter_stack") and not _exists("torch.no.such")

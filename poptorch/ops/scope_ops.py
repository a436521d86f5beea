"""Operators ``torch.ops.poptorch.*`` that programs call by name, as from forward hooks."""

import threading

import torch

from poptorch.blocks import NameScope
from poptorch.errors import Error

_DTYPES = {"FLOAT": torch.float32, "FLOAT16": torch.float16, "BFLOAT16": torch.bfloat16,
           "DOUBLE": torch.float64, "INT32": torch.int32, "INT64": torch.int64,
           "BOOL": torch.bool}

_library = torch.library.Library("poptorch", "FRAGMENT")
_local = threading.local()


def _entered() -> list[NameScope]:
    if not hasattr(_local, "scopes"):
        _local.scopes = []
    return _local.scopes


def _push_name_scope(name: str) -> None:
    _entered().append(NameScope(name).__enter__())


def _pop_name_scope() -> None:
    scopes = _entered()
    if not scopes:
        raise Error("[pop_name_scope] no scope is entered: push_name_scope has been called as "
                    "often as pop_name_scope. Call them in pairs.")
    scopes.pop().__exit__(None, None, None)


def _internal_cast(x: torch.Tensor, type: str) -> torch.Tensor:
    if type not in _DTYPES:
        raise Error(f"[internal_cast] unknown type {type!r}. Choose one of "
                    f"{', '.join(_DTYPES)}.")
    return x.to(_DTYPES[type])


for _schema, _function in (("push_name_scope(str name) -> ()", _push_name_scope),
                           ("pop_name_scope() -> ()", _pop_name_scope),
                           ("internal_cast(Tensor x, str type) -> Tensor", _internal_cast)):
    _library.define(_schema)
    _library.impl(_schema.split("(")[0], _function, "CompositeImplicitAutograd")

"""Operations that every program has by domain, name and version, without a library.

Each is a function of PyTorch, so its gradient and its types are PyTorch's. The keyword arguments of
the function are the attributes; their annotations are the types of the attributes.
"""

import torch

from poptorch import _C
from poptorch._base.layout import memory_of
from poptorch.errors import Error
from poptorch.ops.named import graphcore, onnx, replicated
from poptorch.ops.named.registry import Row

ROWS: dict[tuple[str, str], list[Row]] = {}  # by domain and name
for _row in (*onnx.ROWS, *graphcore.ROWS, *replicated.ROWS):
    ROWS.setdefault((_row.domain, _row.name), []).append(_row)


def call(inputs: list, domain: str, name: str, version: int, attributes: dict) -> list:
    """The outputs of an operation. They share no memory with the inputs or with each other."""
    row = _find(domain, name, version)
    title = f"{domain}::{name}"
    fewest, most = row.counts()
    if len(inputs) < fewest or (most is not None and len(inputs) > most):
        raise Error(f"[{title}] takes {row.input_words()} inputs, got {len(inputs)}. Give it that "
                    f"many.")
    known = row.attributes()
    for key, value in attributes.items():
        if key not in known:
            raise Error(f"[{title}] has no attribute {key!r}. Its attributes: "
                        f"{', '.join(known) or 'none'}.")
        if not known[key].takes(value):
            raise Error(f"[{title}] attribute {key!r} is {value!r}, it must be "
                        f"{known[key].words}. Give one.")
    for key, attribute in known.items():
        if attribute.is_required and key not in attributes:
            raise Error(f"[{title}] attribute {key!r} is missing. Give {attribute.words}.")
    found = row.function(*inputs, **attributes)
    return _apart(found if isinstance(found, (tuple, list)) else [found], inputs)


def _apart(outputs, inputs: list) -> list[torch.Tensor]:
    """The outputs, where they are views copies: a change of one in place changes nothing else."""
    places, found = set(map(memory_of, inputs)), []
    for output in outputs:
        found.append(output.clone() if memory_of(output) in places else output)
        places.add(memory_of(output))
    return found


def _find(domain: str, name: str, version: int) -> Row:
    rows = ROWS.get((domain, name), [])
    for row in rows:
        if row.first <= version <= row.last:
            return row
    if rows:
        there = " and ".join(f"{row.first} to {row.last}" for row in rows)
        raise Error(f"[custom_op] {domain}::{name} has version {there}, got version "
                    f"{version}. Use one of these.")
    loaded = [f"{op['domain']}::{op['name']} version {op['version']}" for op in _C.custom_ops()]
    near = [text for text in loaded if name in text.split()[0] or domain in text.split("::")[0]]
    near += [f"{there}::{other}" for there, other in ROWS if other == name]
    words = f"There is {', '.join(near)}." if near else \
        f"Loaded libraries define {', '.join(loaded) or 'no operation'}."
    raise Error(f"[custom_op] there is no operation {domain}::{name} in version {version}. {words} "
                f"Load its library first, with ctypes.cdll.LoadLibrary.")

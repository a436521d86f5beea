"""What PyTorch itself says to a call that was refused. Tensors without data take other ways through
torch, with other messages and fewer checks: so the call is made once more, with made-up values."""

import warnings

import torch
from torch.overrides import resolve_name

from poptorch._base.torch_private import tracing as private
from poptorch._capture.graph.unknown_sizes import UnknownSize

_BYTES = 1 << 26  # of arguments, so that it does not take long
_PLAIN = (bool, int, float, complex, str, torch.dtype, torch.device, torch.layout,
          torch.memory_format, type(None), type(...))


def refusal(function, args: tuple, kwargs: dict) -> Exception | None:
    """What PyTorch raises for a call, whatever the values of the tensors; None if it accepts it.

    None is also returned for what cannot be tried: a function that is not torch's, or that looks at
    how its tensors came about; arguments that cannot be made again.
    """
    if not _can_be_tried(function):
        return None
    first = _raised(function, args, kwargs, 0)
    if first is None:
        return None
    second = _raised(function, args, kwargs, 1)
    return first if type(first) is type(second) else None


def description(name: str, args: tuple, kwargs: dict) -> str:
    """A call in the form ``name(float32[2, 3], dim=1)``, with the user's dtypes."""
    words = [_words(value) for value in args]
    words += [f"{key}={_words(value)}" for key, value in kwargs.items()]
    return f"{name}({', '.join(words)})"


def _can_be_tried(function) -> bool:
    if isinstance(function, private.OpOverload):
        return function.namespace == "aten"
    name = resolve_name(function) or ""
    return name.startswith("torch.") and "autograd" not in name and "backward" not in name


def _raised(function, args, kwargs, filling: int) -> Exception | None:
    """What one call with made-up values raises, if it is not the values' fault."""
    with private.without_modes(), torch.random.fork_rng(devices=()), warnings.catch_warnings(), \
            torch.no_grad():
        warnings.simplefilter("ignore")
        maker = _Maker(filling)
        try:
            args, kwargs = maker.made(tuple(args)), maker.made(dict(kwargs))
        except _Unknown:
            return None
        try:
            function(*args, **kwargs)
        except (torch.linalg.LinAlgError, torch.OutOfMemoryError, MemoryError):
            return None
        except Exception as error:
            return error
    return None


class _Unknown(Exception):
    """A value that cannot be made again."""


class _Maker:
    """Makes arguments like given ones: integers and bools of ``filling``, floating-point values are
    drawn."""

    def __init__(self, filling: int):
        self._filling = filling
        self._bytes = 0
        self._made: dict[int, torch.Tensor] = {}

    def made(self, value):
        """``value`` with made-up tensors; a tensor that occurs twice becomes one."""
        if isinstance(value, UnknownSize):
            raise _Unknown
        if isinstance(value, torch.Tensor):
            if id(value) not in self._made:
                self._made[id(value)] = self._tensor(value)
            return self._made[id(value)]
        if isinstance(value, (torch.Size, *_PLAIN)):
            return value
        if type(value) is slice:
            return slice(*map(self.made, (value.start, value.stop, value.step)))
        if isinstance(value, (list, tuple)):  # those of FX are subclasses
            items = [self.made(item) for item in value]
            return items if isinstance(value, list) else tuple(items)
        if isinstance(value, dict):
            return {key: self.made(item) for key, item in value.items()}
        raise _Unknown

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout is not torch.strided:
            raise _Unknown
        extent = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride())) + 1
        self._bytes += extent * tensor.element_size()
        if self._bytes > _BYTES:
            raise _Unknown
        made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
        # Memory that elements share is filled as a whole.
        whole = made.as_strided((extent,), (1,)) if made.numel() else made
        if made.dtype.is_floating_point or made.dtype.is_complex:
            whole.copy_(torch.rand(whole.shape))
        else:
            whole.fill_(self._filling)
        return made


def _words(value) -> str:
    if isinstance(value, UnknownSize):
        return "a tensor of unknown size"
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(map(_words, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    if type(value) is slice:
        step = "" if value.step is None else f":{_words(value.step)}"
        ends = ["" if end is None else _words(end) for end in (value.start, value.stop)]
        return ":".join(ends) + step
    text = "..." if value is ... else repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."

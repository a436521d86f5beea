"""The arguments of a call: their structure at the first call, and checks of later ones."""

import inspect

import torch

from poptorch._capture.structure import join_path, rebuilt
from poptorch._translate.types import narrowed
from poptorch.errors import Error


class Leaf:
    """One place in the argument structure: a tensor's shape and dtype, or a constant's value."""

    def __init__(self, path: str, value):
        self.path = path
        self.is_tensor = isinstance(value, torch.Tensor)
        self.value = None if self.is_tensor else value
        if self.is_tensor:
            self.shape, self.dtype = value.shape, narrowed(value.dtype)


class Arguments:
    """Arguments as the compiled program takes them.

    Args:
        model: the module; its ``forward`` gives the signature.
        args, kwargs: of the first call.
        micro_batches: how many micro-batches share the first dimension of each tensor.

    Attributes:
        micro_args, micro_kwargs: the arguments cut down to one micro-batch, for capture.
        leaves: every tensor and constant, in order of the structure.

    Raises:
        poptorch.Error: A mandatory parameter is missing, a tensor is on another device, or a
            first dimension cannot be cut into micro-batches.
    """

    def __init__(self, model: torch.nn.Module, args: tuple, kwargs: dict, micro_batches: int):
        self._signature = _signature(model)
        self._micro_batches = micro_batches
        bound = self._bind(args, kwargs)
        self.leaves: list[Leaf] = []
        self._structure = self._describe(bound, "", self.leaves)
        for leaf, tensor in zip(self.tensor_leaves(), self._flat(bound)):
            self._check_batch(leaf, tensor)
        micro = self._cut(bound)
        self.micro_args, self.micro_kwargs = self._unbind(micro)

    def tensor_leaves(self) -> list[Leaf]:
        """The tensors among the leaves, in order: the order of :meth:`match`'s result."""
        return [leaf for leaf in self.leaves if leaf.is_tensor]

    def match(self, args: tuple, kwargs: dict) -> list[torch.Tensor]:
        """The tensors of a later call, in the order of the leaves.

        Raises:
            poptorch.Error: Structure, shape, dtype, device or a constant's value differs.
        """
        tensors: list[torch.Tensor] = []
        self._match(self._structure, self._bind(args, kwargs), "", tensors)
        return tensors

    # -- binding to the signature --------------------------------------------------------------

    def _bind(self, args: tuple, kwargs: dict) -> dict:
        """The arguments by parameter; ``*args`` as a tuple and ``**kwargs`` as a dict."""
        if self._signature is None:
            return {"args": args, "kwargs": kwargs}
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise self._binding_error(args, kwargs, error) from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def _binding_error(self, args, kwargs, error) -> Error:
        parameters = self._signature.parameters
        by_position = [p for p in parameters.values() if p.kind in (
            inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)]
        for position, parameter in enumerate(by_position):
            given = position < len(args) or parameter.name in kwargs
            if not given and parameter.default is inspect.Parameter.empty:
                return Error(f"[arguments] Mandatory parameter {parameter.name} missing: forward "
                             f"takes {self._signature}. Pass it.")
        return Error(f"[arguments] {error}: forward takes {self._signature}.")

    def _unbind(self, bound: dict) -> tuple[tuple, dict]:
        if self._signature is None:
            return bound["args"], bound["kwargs"]
        again = inspect.BoundArguments(self._signature, bound)
        return again.args, again.kwargs

    # -- structure -----------------------------------------------------------------------------

    def _describe(self, value, path: str, leaves: list):
        """The structure of ``value`` as (kind, keys, children) around leaves."""
        if isinstance(value, dict):
            children = [self._describe(v, join_path(path, k), leaves) for k, v in value.items()]
            return (type(value), tuple(value), children)
        if isinstance(value, (list, tuple)):
            children = [self._describe(v, join_path(path, i), leaves) for i, v in enumerate(value)]
            return (type(value), None, children)
        leaf = Leaf(path, value)
        leaves.append(leaf)
        return leaf

    def _flat(self, value) -> list[torch.Tensor]:
        if isinstance(value, torch.Tensor):
            return [value]
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, (list, tuple)):
            return [t for v in value for t in self._flat(v)]
        return []

    def _cut(self, value):
        """``value`` with each tensor cut down to its first micro-batch."""
        if isinstance(value, torch.Tensor):
            if self._micro_batches == 1:
                return value
            return value.narrow(0, 0, value.shape[0] // self._micro_batches)
        if isinstance(value, dict):
            return rebuilt(value, {k: self._cut(v) for k, v in value.items()})
        if isinstance(value, (list, tuple)):
            return rebuilt(value, [self._cut(v) for v in value])
        return value

    def _check_batch(self, leaf: Leaf, tensor: torch.Tensor) -> None:
        _check_device(leaf.path, tensor)
        n = self._micro_batches
        if n == 1:
            return
        if not leaf.shape or leaf.shape[0] % n:
            raise Error(
                f"[arguments] {leaf.path}: the first dimension must hold device_iterations * "
                f"gradient_accumulation * replication_factor = {n} micro-batches of equal size, "
                f"got {leaf.shape}. Pass a multiple of {n}, for instance by means of "
                f"poptorch.DataLoader.")

    # -- later calls ---------------------------------------------------------------------------

    def _match(self, expected, value, path: str, tensors: list) -> None:
        if isinstance(expected, Leaf):
            self._match_leaf(expected, value, tensors)
            return
        kind, keys, children = expected
        if not isinstance(value, kind) and not (kind is tuple and isinstance(value, tuple)):
            raise Error(f"[arguments] Type mismatch for {path}: expected {kind} but got "
                        f"{type(value)}. Call destroy() first to compile for other arguments.")
        if keys is not None:
            self._match_keys(keys, value, path)
            for key, child in zip(keys, children):
                self._match(child, value[key], join_path(path, key), tensors)
            return
        if len(value) != len(children):
            what = "positional arguments" if path == "args" else f"items in {path}"
            raise Error(f"[arguments] Number of {what} mismatch: expected {len(children)} "
                        f"arguments but got {len(value)}. Call destroy() first to compile for "
                        f"other arguments.")
        for i, (child, item) in enumerate(zip(children, value)):
            self._match(child, item, join_path(path, i), tensors)

    def _match_keys(self, keys, value: dict, path: str) -> None:
        missing = [str(k) for k in keys if k not in value]
        extra = [str(k) for k in value if k not in keys]
        where = f" (in {path})" if path else ""
        if missing:
            raise Error(f"[arguments] Missing arguments: {', '.join(missing)}.{where} The model "
                        f"was compiled with them; destroy() it to compile again.")
        if extra:
            raise Error(f"[arguments] Unexpected arguments: {', '.join(extra)}.{where} The model "
                        f"was compiled without them; destroy() it to compile again.")

    def _match_leaf(self, leaf: Leaf, value, tensors: list) -> None:
        if leaf.is_tensor != isinstance(value, torch.Tensor):
            kind = torch.Tensor if leaf.is_tensor else type(leaf.value)
            raise Error(f"[arguments] Type mismatch for {leaf.path}: expected {kind} but got "
                        f"{type(value)}. Call destroy() first to compile for other arguments.")
        if not leaf.is_tensor:
            if type(value) is not type(leaf.value) or not _same(value, leaf.value):
                raise Error(f"[arguments] mismatch for {leaf.path}: expected {leaf.value!r} but "
                            f"got {value!r}. Values other than tensors are compiled in; call "
                            f"destroy() first to compile for others.")
            return
        if value.shape != leaf.shape or narrowed(value.dtype) is not leaf.dtype:
            raise self._tensor_error(leaf, value)
        if value.device.type != "cpu":
            _check_device(leaf.path, value)
        tensors.append(value)

    def _tensor_error(self, leaf: Leaf, value: torch.Tensor) -> Error:
        expected, got = leaf.shape, value.shape
        if narrowed(value.dtype) is not leaf.dtype:
            expected, got = leaf.dtype, narrowed(value.dtype)
        return Error(f"[arguments] {leaf.path}: expected {expected} but got {got}. The model is "
                     f"compiled for the shapes and types of its first call; call destroy() first "
                     f"to compile for others.")


def _signature(model) -> inspect.Signature | None:
    try:
        return inspect.signature(model.forward)
    except (TypeError, ValueError):
        return None


def _same(a, b) -> bool:
    same = a == b
    return bool(same) or (a != a and b != b)


def _check_device(path: str, tensor: torch.Tensor) -> None:
    if tensor.device.type != "cpu":
        raise Error(f"[arguments] {path}: expected a tensor on the CPU but got one on "
                    f"{tensor.device}. The executor moves data to the device itself: pass "
                    f"{path}.cpu().")

"""The arguments of a call: their structure at the first call, and checks of later ones."""

import inspect
import operator

import numpy
import torch
from torch.nn.modules import module as torch_module

from poptorch import _C
from poptorch._base import schema
from poptorch._base.logging import logger
from poptorch._base.pytree import structure as pytree
from poptorch._base.pytree.structure import Mismatch, Structure
from poptorch._base.types import check_dense, computes_as_usual, ir_type, narrowed
from poptorch._base.value_snapshot import VALUES, Objects, Snapshot, same
from poptorch._capture.graph.module_clones import HOOKS
from poptorch._capture.graph.source_location import is_torchs
from poptorch._runtime.argument_memory import mismatch
from poptorch._translate import StepSpec
from poptorch.errors import Error


class ArgsParser:
    """Which parameters a model takes, by the signature of ``forward``.

    A program may give the executor one of its own before the first call: of a subclass whose
    constructor sets the attributes ``_varnames``, ``_defaults`` (of the last parameters, if there
    are fewer), ``_has_variadic_arguments`` (the parameters are then those of ``forward``) and
    ``_warned_not_contiguous_input``, which is not used.
    """

    def __init__(self, model: torch.nn.Module):
        parameters = inspect.signature(model.forward).parameters.values()
        self._has_variadic_arguments = any(p.kind in _VARIADIC for p in parameters)
        self._varnames = [p.name for p in parameters]
        self._defaults = [p.default for p in parameters]
        self._warned_not_contiguous_input = False

    def signature(self, model: torch.nn.Module) -> inspect.Signature | None:
        """The parameters as a signature; None where nothing is known of them."""
        if self._has_variadic_arguments:
            return _signature(model)
        empty = inspect.Parameter.empty
        missing = len(self._varnames) - len(self._defaults)
        return inspect.Signature([
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)
            for name, default in zip(self._varnames, [empty] * missing + list(self._defaults))])


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Leaf:
    """One place in the argument structure: a tensor's shape and dtype, or a constant's value."""

    def __init__(self, path: str, value=None):
        self.path = path
        self.value = set(value) if type(value) is set else value  # for a file: as it is now
        self.is_tensor = False
        self._was = None if type(value) in VALUES else Snapshot(value, Objects.EQUAL)

    def difference(self, value) -> tuple[str, str, str] | None:
        """The path, the compiled value and the present one where a constant differs; None: nowhere.

        What ``forward`` read of an object that is the same one is for the guard to compare.
        """
        if self._was is not None:
            return self._was.difference(value, self.path)
        is_same = type(value) is type(self.value) and same(value, self.value)
        return None if is_same else (self.path, repr(self.value), repr(value))

    def as_it_was(self):
        """The constant that was compiled in, for a file. An Error if the object changed since."""
        found = self.difference(self.value)
        if found is not None:
            raise pytree.changed_since_compilation(*found)
        return self.value

    @classmethod
    def of_tensor(cls, path: str, shape: torch.Size, dtype: torch.dtype,
                  given: torch.dtype) -> "Leaf":
        """The place of a tensor; ``given`` is its dtype in the first call, not on the device."""
        leaf = cls(path)
        leaf.is_tensor, leaf.shape, leaf.dtype, leaf.given = True, shape, dtype, given
        return leaf

    def fits(self, value) -> bool:
        """Whether ``value`` is a dense tensor like the compiled one, once it is narrowed."""
        return (isinstance(value, torch.Tensor) and narrowed(value.dtype) is self.dtype
                and value.is_cpu and value.layout is torch.strided and not value.is_nested
                and value.shape == self.shape and computes_as_usual(type(value)))


class Arguments:
    """Arguments as the compiled program takes them, by those of the first call.

    Args:
        parser: which parameters the module takes; None: those of its ``forward``.

    Attributes:
        leaves: every tensor and constant, in order of the structure.
        called: how many arguments the first call passed by position, and the names of the others;
            None where a custom parser names the arguments.
    """

    def __init__(self, model: torch.nn.Module, args: tuple, kwargs: dict, spec: StepSpec,
                 parser: ArgsParser | None = None):
        self._signature = _signature(model) if parser is None else parser.signature(model)
        self._micro_batches, self._is_training = spec.micro_batches, spec.training
        self._formula = spec.micro_batch_formula
        bound = self._bind(args, kwargs)
        tensors, structure = Structure.of_named(bound, "arguments")
        for path, tensor in zip(structure.paths, tensors):
            _check_tensor(tensor, path)
        self._structure = structure
        self.leaves = _leaves(structure, [(t.shape, narrowed(t.dtype), t.dtype) for t in tensors])
        for leaf, tensor in zip(self.tensor_leaves(), tensors):
            self._check_batch(leaf, tensor)
        for leaf in self.leaves:
            if not leaf.is_tensor:
                _check_constant(leaf)
        self._plain = None
        self._note_plain(args, kwargs, tensors)
        self.called = (len(args), tuple(kwargs)) if parser is None else None
        self._seen_by = None if self.called is None else _seen_by(model)
        self._check_seen(args, kwargs, bound)

    def micro_batch(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """The arguments of the first call, cut down to one micro-batch."""
        n = self._micro_batches
        if n == 1:
            return self._unbind(self._bind(args, kwargs))
        return self._unbind(pytree.map_only(
            torch.Tensor, lambda tensor: tensor.narrow(0, 0, tensor.shape[0] // n),
            self._bind(args, kwargs)))

    def compare(self, read: dict[int, set[str]]) -> None:
        """Compares ``Captured.beside`` later; forgets the first call's objects."""
        self._structure = self._structure.comparing(read)

    def to_data(self) -> dict:
        """What the program depends on, without the module and the first call's tensors."""
        constants = [leaf.as_it_was() for leaf in self.leaves if not leaf.is_tensor]
        return {"structure": self._structure.to_data(constants),
                "called": None if self._seen_by is None else (self.called[0],
                                                              list(self.called[1])),
                "tensors": [(leaf.shape, leaf.dtype) for leaf in self.tensor_leaves()]}

    @classmethod
    def from_data(cls, data: dict, model: torch.nn.Module) -> "Arguments":
        """The reverse of :meth:`to_data`, checked, for the signature of ``model``."""
        schema.check(data, _FORM, "arguments")
        new = cls.__new__(cls)
        new._signature = _signature(model)
        new.called = new._seen_by = None
        if data["called"] is not None:
            schema.check(data["called"], (int, [str]), "arguments.called")
            count, names = data["called"]
            new.called, new._seen_by = (count, tuple(names)), _seen_by(model)
        structure = Structure.from_data(data["structure"], "arguments.structure")
        new._structure = structure.comparing()
        schema.check(data["structure"], _ROOT, "arguments.structure")
        schema.check(list(data["structure"][2]), [str], "arguments")
        if len(new._structure.paths) != len(data["tensors"]):
            raise ValueError(f"arguments.tensors has {len(data['tensors'])} entries for "
                             f"{len(new._structure.paths)} tensors of arguments.structure")
        new.leaves = _leaves(new._structure,
                             [(shape, dtype, dtype) for shape, dtype in data["tensors"]])
        new._plain = None
        return new

    def text(self) -> str:
        """The arguments in one line: ``x: float32[4, 2], scale: 2.0``."""
        return ", ".join(
            f"{leaf.path}: {str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}"
            if leaf.is_tensor else f"{leaf.path}: {leaf.value!r}" for leaf in self.leaves)

    def tensor_leaves(self) -> list[Leaf]:
        """The tensors among the leaves, in order: the order of :meth:`match`'s result."""
        return [leaf for leaf in self.leaves if leaf.is_tensor]

    def samples(self) -> int:
        """The size of the batch of one call: the first dimension of the first tensor with one."""
        sizes = [leaf.shape[0] for leaf in self.tensor_leaves() if leaf.shape]
        return sizes[0] if sizes else self._micro_batches

    def match(self, args: tuple, kwargs: dict) -> list[torch.Tensor]:
        """The tensors of a later call, in the order of the leaves. An Error if it does not fit."""
        plain = self._plain
        if plain is not None and not kwargs and len(args) == len(plain) \
                and (_C.all_match(self._kinds, args) or all(map(Leaf.fits, plain, args))):
            return list(args)
        if self._seen_by is not None:
            self._check_called(args, kwargs)
        try:
            values = self._structure.flatten_like(self._bind(args, kwargs))
        except Mismatch as found:
            raise self._structure_error(found) from None
        tensors: list[torch.Tensor] = []
        for leaf, value in zip(self.leaves, values):
            self._match_leaf(leaf, value, tensors)
        if plain is None:
            self._note_plain(args, kwargs, tensors)
        return tensors

    def _note_plain(self, args: tuple, kwargs: dict, tensors: list[torch.Tensor]) -> None:
        """Notes a call that passes all its tensors, and nothing else, by position.

        Later calls like it need not be bound to the signature. The common case of :meth:`Leaf.fits`
        is seen in one step.
        """
        if not kwargs and len(args) == len(tensors) and all(map(operator.is_, args, tensors)):
            leaves = self.tensor_leaves()
            self._kinds = [_C.TensorKind(leaf.dtype, leaf.shape) for leaf in leaves]
            self._plain = leaves

    def _check_seen(self, args: tuple, kwargs: dict, bound: dict) -> None:
        if self._seen_by is None or self._signature is None:
            return
        given = self._signature.bind(*args, **kwargs).arguments
        for name, value in bound.items():
            if name not in given and Structure.of(value)[0]:
                raise Error(f"[arguments] {name} is not passed, and its default holds a tensor, "
                            f"which the program takes as an argument: {self._seen_by}, which sees "
                            f"the difference. Pass {name}.")

    def _check_called(self, args: tuple, kwargs: dict) -> None:
        count, names = self.called
        if (count, set(names)) != (len(args), set(kwargs)):
            raise mismatch(f"expected {count} arguments by position and {sorted(names)} by name, "
                           f"as in the first call, but got {len(args)} by position and "
                           f"{sorted(kwargs)} by name: {self._seen_by}, which sees the difference. "
                           f"Pass them in the same way.")

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
        advice = "If one is a target, wrap the model with loss=." \
            if self._is_training else "Leave the others out."
        return Error(f"[arguments] {error}: forward takes {self._signature}, got "
                     f"{len(args)} by position and {list(kwargs)} by name. {advice}")

    def _unbind(self, bound: dict) -> tuple[tuple, dict]:
        if self._signature is None:
            return bound["args"], bound["kwargs"]
        again = inspect.BoundArguments(self._signature, bound)
        return again.args, again.kwargs

    def _check_batch(self, leaf: Leaf, tensor: torch.Tensor) -> None:
        if tensor.requires_grad:
            logger.warning("[arguments] %s requires grad: it is detached, the gradient of an "
                           "argument is not computed.", leaf.path)
        n = self._micro_batches
        if n == 1:
            return
        if not leaf.shape or leaf.shape[0] % n:
            raise Error(
                f"[arguments] {leaf.path}: the first dimension must hold {self._formula} "
                f"micro-batches of equal size, got {leaf.shape}. Pass a multiple of {n}, for "
                f"example with poptorch.DataLoader.")

    # -- later calls ---------------------------------------------------------------------------

    def _structure_error(self, found: Mismatch) -> Error:
        expected, got = found.expected, found.got
        if found.what == "keys":
            return _keys_error(expected, got, found.path)
        path = self._shown(found.path)
        if found.what == "type":
            return mismatch(f"Type mismatch for {path}: expected {expected} but got {got}.")
        if found.what == "attribute":
            return other_value(path, expected, got)
        if found.what == "context":
            return mismatch(f"mismatch for {path}: expected a container with {expected!r} in "
                            f"addition to its parts but got one with {got!r}. Values other than "
                            f"tensors are compiled in.")
        named = self._named_before(found.path)
        what = f"items in {path}" if named is None else "positional arguments"
        return mismatch(f"Number of {what} mismatch: expected {expected + (named or 0)} arguments "
                        f"but got {got + (named or 0)}.")

    def _shown(self, path: str) -> str:
        """A path as the caller writes it: without the name that forward has for ``**kwargs``."""
        parameters = {} if self._signature is None else self._signature.parameters
        names = [name for name, parameter in parameters.items()
                 if parameter.kind is inspect.Parameter.VAR_KEYWORD]
        return path.removeprefix(f"{names[0] if names else 'kwargs'}.") \
            if names or self._signature is None else path

    def _named_before(self, path: str) -> int | None:
        """How many parameters precede ``*args``; None for another path than that of ``*args``."""
        if self._signature is None:
            return 0 if path == "args" else None
        kinds = {name: p.kind for name, p in self._signature.parameters.items()}
        if kinds.get(path) is not inspect.Parameter.VAR_POSITIONAL:
            return None
        return list(kinds).index(path)

    def _match_leaf(self, leaf: Leaf, value, tensors: list) -> None:
        if leaf.is_tensor != isinstance(value, torch.Tensor):
            kind = torch.Tensor if leaf.is_tensor else type(leaf.value)
            raise mismatch(f"Type mismatch for {self._shown(leaf.path)}: expected {kind} but got "
                           f"{type(value)}.")
        if not leaf.is_tensor:
            found = leaf.difference(value)
            if found is not None:
                path, *values = found
                raise other_value(self._shown(path), *values)
            return
        if value.shape != leaf.shape or narrowed(value.dtype) is not leaf.dtype:
            raise self._tensor_error(leaf, value)
        check_dense(value, leaf.path)
        tensors.append(value)

    def _tensor_error(self, leaf: Leaf, value: torch.Tensor) -> Error:
        expected, got, first, how = leaf.shape, value.shape, "", ""
        if expected and got and expected[1:] == got[1:]:
            how = (f": for a last batch of another size, use drop_last=True in the DataLoader, or "
                   f"pad the batch to {expected[0]}")
        on_device = narrowed(value.dtype)
        if on_device is not leaf.dtype:
            note = "" if on_device is value.dtype else f" ({on_device} on the device)"
            expected, got, how = leaf.dtype, f"{value.dtype}{note}", ""
            if leaf.given is not leaf.dtype:
                first = f", {leaf.given} here, which is {leaf.dtype} on the device"
        return mismatch(f"{self._shown(leaf.path)}: expected {expected} but got {got}. The model "
                        f"is compiled for the shapes and types of its first call{first}{how}.")


_FORM = {"structure": tuple, "called": tuple | None, "tensors": [(torch.Size, torch.dtype)]}
_ROOT = ({"mapping"}, type, tuple, object, tuple | None, tuple)  # the parameters


def other_value(path: str, expected: str, got: str) -> Error:
    """For a value that is not a tensor and differs from the compiled one."""
    return mismatch(f"mismatch for {path}: expected {expected} but got {got}. Values other than "
                    f"tensors are compiled in: pass a tensor for a number that changes.")


def _leaves(structure: Structure, tensors: list[tuple]) -> list[Leaf]:
    """All leaves of the arguments; of each tensor shape and dtypes are known."""
    left = iter(tensors)
    return [Leaf.of_tensor(path, *next(left)) if part is None else Leaf(path, part.value)
            for path, part in structure.leaves()]


def _keys_error(expected: list, got: list, path: str) -> Error:
    missing = [str(key) for key in expected if key not in got]
    extra = [str(key) for key in got if key not in expected]
    where = f" (in {path})" if path else ""
    what, names, how = ("Missing", missing, "with") if missing else ("Unexpected", extra, "without")
    return mismatch(f"{what} arguments: {', '.join(names)}.{where} The model was compiled {how} "
                    f"them.")


def _signature(model) -> inspect.Signature | None:
    try:
        return inspect.signature(model.forward)
    except (TypeError, ValueError):
        return None


def _seen_by(model: torch.nn.Module) -> str | None:
    """What, besides ``forward``, sees how a call passes its arguments; None: nothing does."""
    callers = [vars(cls)["__call__"] for cls in type(model).__mro__ if "__call__" in vars(cls)]
    if not all(map(_is_ours, callers)):
        return "the model has a __call__ of its own"
    around = getattr(model.forward, "__func__", model.forward)
    while hasattr(around, "__wrapped__"):  # torch's, as no_grad makes them, pass everything on
        code = getattr(around, "__code__", None)
        if code is None or not is_torchs(code.co_filename):
            return "there is a function around forward"
        around = around.__wrapped__
    tables = [table for kind in HOOKS
              for table in (getattr(model, kind), getattr(torch_module, f"_global{kind}"))]
    is_seen = not all(_is_ours(hook) for table in tables for hook in list(table.values()))
    return "the model has a hook" if is_seen else None


def _is_ours(function) -> bool:
    """Whether a function is of torch or poptorch: these do not look at how arguments are passed."""
    name = getattr(function, "__module__", None) or ""
    return name.partition(".")[0] in ("torch", "poptorch")


def _check_tensor(tensor: torch.Tensor, path: str) -> None:
    """Refuses tensors that no program takes."""
    check_dense(tensor, path)
    try:
        ir_type(tensor)
    except Error as error:
        raise Error(f"[arguments] {path}: {error.message.partition('] ')[2]}") from error


def _check_constant(leaf: Leaf) -> None:
    """Refuses values that a later call could not compare."""
    if isinstance(leaf.value, numpy.ndarray):
        raise Error(f"[arguments] {leaf.path} is a numpy array of shape {leaf.value.shape}, "
                    f"expected a tensor. Pass torch.from_numpy({leaf.path}).")
    kind = type(leaf.value).__name__
    if pytree.is_closed(leaf.value):
        raise Error(f"[arguments] {leaf.path} is a {kind}, not a supported container. "
                    f"Pass list({leaf.path}) or tuple({leaf.path}).")
    if kind == "BlockMask":
        raise Error(f"[arguments] {leaf.path} is a BlockMask, whose mask_mod is Python code. Keep "
                    f"it as an attribute of the module, or call create_block_mask in forward; "
                    f"tensors that mask_mod reads may be arguments.")
    held = pytree.tensor_attributes(leaf.value)
    if held:
        raise Error(f"[arguments] {leaf.path} is a {kind}, which holds "
                    f"tensors ({', '.join(held)}). Pass tensors, or lists, tuples, dictionaries "
                    f"or dataclasses of them; or register a parser for the class with "
                    f"poptorch.registerCustomArgParser.")

"""Calls of functions of the host from within a program: what each needs, and what calls it."""

import itertools
import weakref
from dataclasses import dataclass

import torch
from torch.autograd.function import BackwardCFunction

from poptorch._base import capture_context
from poptorch._base.layout import copied_strides, extent, memory_of, same_bits
from poptorch._base.pytree.structure import Mismatch, Structure, map_only
from poptorch._base.torch_private import fake_tensors
from poptorch._base.torch_private import tracing as private
from poptorch._base.types import host_tensor, narrowed
from poptorch._capture.decompose.functional_ops import mutated_arguments
from poptorch._capture.library import double_backward
from poptorch._capture.library.layers import LIBRARY, define, ops
from poptorch.errors import Error

_numbers = itertools.count()
# Programs keep their sites alive.
_sites: "weakref.WeakValueDictionary[int, Site | Gradient]" = weakref.WeakValueDictionary()


@dataclass(frozen=True)
class Result:
    """What the function returns in one place. ``stride`` is that of a copy; ``arguments`` are the
    numbers of the tensors among the arguments to which its gradient flows on."""

    shape: torch.Size
    dtype: torch.dtype
    stride: tuple[int, ...]
    has_gradient: bool
    arguments: frozenset[int]

    @classmethod
    def of(cls, tensor: torch.Tensor, leaves: list[torch.Tensor]) -> "Result":
        """That of a result which was computed from ``leaves``."""
        ends = {id(node.variable) for node in private.autograd_nodes(tensor.grad_fn)
                if hasattr(node, "variable")} if tensor.requires_grad else set()
        reached = (i for i, leaf in enumerate(leaves) if leaf is tensor or id(leaf) in ends)
        with private.without_modes():
            stride = copied_strides(tensor)
        return cls(tensor.shape, tensor.dtype, stride, private.has_gradient(tensor),
                   frozenset(i for i in reached if leaves[i].requires_grad))


class Site:
    """One call in ``forward`` of a function of the host, which the program names by ``number``.

    ``arguments`` is the structure of ``(args, kwargs)``, ``tensors`` are the captured ones in it.
    ``structure`` and ``results`` say what the function returns. ``divisor`` is that of the
    gradients of what the function uses by itself; None: nobody knows it.
    """

    def __init__(self, op, function, arguments: Structure, tensors: list[torch.Tensor]):
        self.number, self.name = next(_numbers), op.name
        self._op, self._function, self._arguments = op, function, arguments
        keeps = torch.is_grad_enabled()
        self._inputs = [(t.dtype, keeps and t.requires_grad) for t in tensors]
        self._shapes = [t.shape for t in tensors]
        # What each forward call keeps, by the number that it returns, and which gradients are to
        # take it.
        self._kept: dict[int, tuple[list, list, set[int]]] = {}
        self._tickets = itertools.count()
        self.gradients: list[Gradient] = []
        self.structure: Structure | None = None
        self.results: list[Result] = []
        self._passes_user_code = False
        self.divisor: float | None = 1.0
        _sites[self.number] = self

    @property
    def keeps(self) -> bool:
        """Whether a gradient flows through it."""
        return any(result.arguments for result in self.results)

    # -- while it is captured ------------------------------------------------------------------

    def find_results(self, capture, tensors: list[torch.Tensor]) -> None:
        """Calls the function once, without data if it can do without."""
        error = capture.recorder.error
        used = _Used()
        outside, is_enabled = capture_context.current(), torch.is_grad_enabled()
        # A checkpoint around is not to see what autograd saves.
        saves = torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x)
        capture_context.set_current(None)
        try:
            with private.without_dispatch_modes(), torch.set_grad_enabled(is_enabled), saves, \
                    capture.attributes_of_users():
                leaves, changed, returned = self._tried(used, tensors)
        finally:
            capture_context.set_current(outside)
        names = sorted(set(filter(None, map(capture.is_trained, used.tensors))))
        if names:
            raise error(f"[CPU] {self.name!r} uses {', '.join(names)}, which the program trains: "
                        f"the device has the newest value. Pass the parameter to the op as an "
                        f"argument, or set requires_grad of it to False.")
        if changed:
            raise error(self._changing(changed[0]))
        found, self.structure = Structure.of(returned, "CPU", f"the result of {self.name!r}")
        for path, constant in self.structure.leaves():
            if constant is not None and constant.value is not None:
                raise error(f"[CPU] {self.name!r} returns {type(constant.value).__name__} "
                            f"{constant.value!r}{f' at {path}' if path else ''}, which would be "
                            f"the same in each run. Return tensors: torch.tensor(value).")
        self.results = [Result.of(tensor, leaves) for tensor in found]
        self._passes_user_code = used.has_hooks or any(
            isinstance(node, BackwardCFunction)
            for result in found for node in private.autograd_nodes(result.grad_fn)
        ) or bool(_own_variables(found, leaves))
        if any(result.has_gradient for result in self.results) and not self.keeps:
            raise error(f"[CPU] {self.name!r} has parameters of its own that require grad, and "
                        f"none of its arguments does, so no gradient would reach them. Call it "
                        f"under torch.no_grad(), or set requires_grad of them to False.")

    def _tried(self, used: "_Used", tensors: list[torch.Tensor]):
        """The arguments, numbers of those that the function changes, and what it returns."""
        mode = fake_tensors.new_fake_mode()
        leaves = [fake_tensors.fake_like(mode, t).requires_grad_(trained)
                  for t, (_, trained) in zip(tensors, self._inputs)]
        try:
            with mode, used:
                return self._watched(used, leaves)
        except Exception:  # it reads values, as .numpy() and .item() do
            leaves = [_zeros_like(t).requires_grad_(trained)
                      for t, (_, trained) in zip(tensors, self._inputs)]
            with used, torch.random.fork_rng():
                leaves, changed, returned = self._watched(used, leaves)
            with torch.no_grad():  # also what was written through NumPy
                changed += [i for i, leaf in enumerate(leaves) if bool((leaf != 0).any())]
            return leaves, changed, returned

    def _watched(self, used: "_Used", leaves: list[torch.Tensor]):
        before = [leaf._version for leaf in leaves]
        used.written.clear()
        with _Hooks(used):
            returned = self._called(leaves)
        changed = [i for i, leaf in enumerate(leaves)
                   if leaf._version != before[i] or memory_of(leaf) in used.written]
        return leaves, changed, returned

    def recorded(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Records the call; returns its results."""
        with torch.no_grad():  # the operation has no gradient of its own, and autograd warns
            results = ops.host_call(tensors, self.number)
        if not self.keeps:
            return results
        *results, ticket = results
        for numbers in self._with_common_paths():
            arguments = self.reached(numbers)
            made = _HostCall.apply(self, numbers, arguments, ticket, [results[i] for i in numbers],
                                  *(tensors[i] for i in arguments))
            for number, result in zip(numbers, made):
                results[number] = result
        return results

    def _with_common_paths(self) -> list[list[int]]:
        """Numbers of the results that have a gradient: together where it flows to the same
        arguments, as autograd's graph is to have the paths of eager's alone. All are together
        where gradients pass code of the user's, which sees those of all results at once.
        """
        groups: dict[frozenset[int], list[int]] = {}
        for number, result in enumerate(self.results):
            if result.arguments:
                groups.setdefault(result.arguments, []).append(number)
        return [sorted(sum(groups.values(), []))] if self._passes_user_code else [*groups.values()]

    def reached(self, numbers: list[int]) -> list[int]:
        """Numbers of the arguments to which the gradients of some results flow."""
        return sorted(set().union(*(self.results[i].arguments for i in numbers)))

    def _called(self, leaves: list[torch.Tensor]):
        args, kwargs = self._arguments.unflatten(leaves)
        return self._function(*args, **kwargs)

    # -- while the program runs ----------------------------------------------------------------

    def run(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Calls the function: its results, and the number of what is kept for the gradient."""
        leaves = [x.to(dtype).requires_grad_(trained)
                  for x, (dtype, trained) in zip(inputs, self._inputs, strict=True)]
        before = [leaf.detach().clone() for leaf in leaves]  # NumPy's writes leave no trace
        with private.as_in_eager(self.keeps):
            returned = self._called(leaves)
            changed = [i for i, leaf in enumerate(leaves) if not same_bits(before[i], leaf)]
            if changed:
                raise Error(self._changing(changed[0]))
            try:
                results = self.structure.flatten_like(returned)
            except Mismatch as mismatch:
                raise self._other(f"returns another {mismatch.what} at "
                                  f"{mismatch.path or 'its result'}: {mismatch.got!r}, when it was "
                                  f"compiled {mismatch.expected!r}") from None
            results = [r for r, (_, constant) in zip(results, self.structure.leaves())
                       if constant is None]
            self._check(results)
            self._op._note(self._arguments.unflatten(leaves), returned)
        found = [host_tensor(result, f"result {number} of {self.name}")
                 if narrowed(result.dtype) is not result.dtype else result.detach()
                 for number, result in enumerate(results)]
        if self.keeps:
            ticket = next(self._tickets) % 2**31
            self._kept[ticket] = leaves, results, {one.number for one in self.gradients}
            found.append(torch.tensor([ticket], dtype=torch.int32))
        return found

    def _check(self, results: list) -> None:
        for number, (result, kind) in enumerate(zip(results, self.results)):
            expected = f"{kind.dtype} and sizes {list(kind.shape)}"
            if not isinstance(result, torch.Tensor):
                raise self._other(f"returns {type(result).__name__} as result {number}, when it "
                                  f"was compiled a tensor of {expected}")
            if result.shape != kind.shape or narrowed(result.dtype) is not narrowed(kind.dtype):
                raise self._other(f"returns a tensor of {result.dtype} and sizes "
                                  f"{list(result.shape)} as result {number}, when it was compiled "
                                  f"one of {expected}")

    def _changing(self, number: int) -> str:
        return (f"[CPU] {self.name!r} changes its argument number {number} in place, which would "
                f"have no effect. Change a clone() of it, and return that.")

    def _other(self, what: str) -> Error:
        return Error(f"[CPU] {self.name!r} {what}. Return the same kind of result in each call.")

    def taken(self, ticket: torch.Tensor,
              gradient: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Arguments and results of the call with a number, for the gradient with a number; they are
        let go when all gradients of the call have taken them."""
        leaves, results, waiting = self._kept[int(ticket)]
        waiting.discard(gradient)
        if not waiting:
            del self._kept[int(ticket)]
        return leaves, results

    def kind(self, number: int) -> tuple[torch.Size, torch.dtype]:
        """Shape and dtype of an argument."""
        return self._shapes[number], self._inputs[number][0]

    def finish(self) -> None:
        """Ends a run: what no gradient has taken is let go."""
        self._kept.clear()


class Gradient:
    """The gradient of one call, when the results of the numbers ``given`` have one.

    It flows to ``arguments``; ``kinds`` are their shapes and dtypes. A gradient that is not that of
    the loss (``is_final``), as from torch.autograd.grad, changes no ``grad``.
    """

    def __init__(self, site: Site, given: list[int], is_final: bool):
        self.number, self._is_final = next(_numbers), is_final
        self.site, self.given = site, given
        self.arguments = site.reached(given)
        self.kinds = [site.kind(number) for number in self.arguments]
        _sites[self.number] = self

    def run(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """The gradients of the arguments, with the loss scale that they came with; those of the
        host's own parameters are added to their ``grad``, as those of the whole loss."""
        *gradients, ticket = inputs
        leaves, results = self.site.taken(ticket, self.number)
        pairs = [(results[i], gradient) for i, gradient in zip(self.given, gradients, strict=True)
                 if results[i].requires_grad]
        for leaf in leaves:
            leaf.grad = None
        with private.as_in_eager(True):
            if pairs:
                self._differentiate(*map(list, zip(*pairs)), leaves)
        wanted = [leaves[i] for i in self.arguments]
        return [torch.zeros_like(x) if x.grad is None else x.grad for x in wanted]

    def _differentiate(self, results: list, gradients: list, leaves: list) -> None:
        # Another gradient of the call, as that of torch.autograd.grad, may come.
        keeps, divisor = len(self.site.gradients) > 1, self.site.divisor
        own = [] if self._is_final and divisor == 1 else _own_variables(results, leaves)
        if not own:
            torch.autograd.backward(results, gradients, retain_graph=keeps)
            return
        if self._is_final and divisor is None:
            raise Error(f"[CPU] {self.site.name!r} has parameters of its own that require grad, "
                        f"and the factor of Training.setAutomaticLossScaling(True), by which their "
                        f"gradients are multiplied, is not known on the host. Set requires_grad of "
                        f"them to False, pass them to the op as arguments, or set loss_scaling of "
                        f"the optimizer instead.")
        reached = [leaf for leaf in leaves if leaf.requires_grad]
        torch.autograd.backward(results, gradients, inputs=reached,
                                retain_graph=keeps or self._is_final)
        if self._is_final:  # once more: hooks of these parameters see what is added, too
            torch.autograd.backward(results, [g / divisor for g in gradients], inputs=own,
                                    retain_graph=keeps)


def _own_variables(results: list[torch.Tensor], leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors that gradients of results are added to, but for the arguments."""
    given = set(map(id, leaves))
    found = {id(node.variable): node.variable for result in results
             for node in private.autograd_nodes(result.grad_fn) if hasattr(node, "variable")}
    return [tensor for key, tensor in found.items() if key not in given]


class _Used(private.DispatchMode):
    """Notes the tensors of the user's that operations take."""

    def __init__(self):
        super().__init__()
        self.tensors: list[torch.Tensor] = []
        self.written: set[int] = set()  # memory that operations write to
        self.has_hooks = False  # whether hooks of gradients may be registered

    def _note(self, tensor: torch.Tensor) -> torch.Tensor:
        if not fake_tensors.is_fake(tensor):
            self.tensors.append(tensor)
        return tensor

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        map_only(torch.Tensor, self._note, (args, kwargs or {}))
        for position, name in mutated_arguments(func):
            given = args[position] if position < len(args) else (kwargs or {}).get(name)
            map_only(torch.Tensor, lambda x: self.written.add(memory_of(x)) or x, given)
        return func(*args, **(kwargs or {}))


# What registers hooks, and what gives nodes of autograd, which have hooks, too.
_TO_HOOKS = (torch.Tensor.register_hook, torch.Tensor.grad_fn.__get__)


class _Hooks(private.TorchFunctionMode):
    """Notes whether hooks of gradients may be registered."""

    def __init__(self, used: _Used):
        super().__init__()
        self._used = used

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self._used.has_hooks |= func in _TO_HOOKS
        return func(*args, **(kwargs or {}))


def _zeros_like(tensor: torch.Tensor) -> torch.Tensor:
    """Zeros with the memory layout of a tensor."""
    with torch.no_grad():
        memory = torch.zeros(extent(tensor), dtype=tensor.dtype)
        return memory.as_strided(tensor.shape, tensor.stride())


# -- the operators -------------------------------------------------------------------------------


def _site(number: int) -> Site | Gradient:
    site = _sites.get(number)
    if site is None:
        raise Error(f"[CPU] the program calls function {number} of the host, which this process "
                    f"does not have. Compile the model in this process.")
    return site


def _results_like(inputs, site):
    site = _site(site)
    ticket = [torch.empty(1, dtype=torch.int32)] if site.keeps else []
    return [*(torch.empty_strided(r.shape, r.stride, dtype=r.dtype) for r in site.results),
            *ticket]


def _gradients_like(inputs, site):
    return [torch.empty(shape, dtype=dtype) for shape, dtype in _site(site).kinds]


define("host_call(Tensor[] inputs, int site) -> Tensor[]", _results_like)
define("host_call_backward(Tensor[] inputs, int site) -> Tensor[]", _gradients_like,
       backward=double_backward.refused("CPU"))
for _name in ("host_call", "host_call_backward"):
    LIBRARY.impl(_name, lambda inputs, site: _site(site).run(inputs),
                 "CompositeExplicitAutograd")


class _HostCall(torch.autograd.Function):
    """Connects results of a call, which is in the graph already, to the arguments that their
    gradients flow to."""

    @staticmethod
    def forward(ctx, site: Site, numbers, arguments, ticket, results, *tensors):
        ctx.set_materialize_grads(False)
        ctx.site, ctx.numbers, ctx.arguments, ctx.ticket = site, numbers, arguments, ticket
        return tuple(results)

    @staticmethod
    def backward(ctx, *gradients):
        given = {i: x for i, x in zip(ctx.numbers, gradients) if x is not None}
        found: dict[int, torch.Tensor] = {}
        if given:
            recorder = capture_context.current().recorder
            gradient = Gradient(ctx.site, list(given), recorder.in_backward)
            ctx.site.gradients.append(gradient)
            made = ops.host_call_backward([*given.values(), ctx.ticket], gradient.number)
            found = dict(zip(gradient.arguments, made))
        return *(None,) * 5, *map(found.get, ctx.arguments)

"""A torch-function mode: sees calls of torch's Python functions before they decompose.

Handlers keep dropout, batch norm, attention and recurrent layers whole (the other files of this
folder); those here refuse what cannot be recorded.
"""

import contextlib
import copy
import functools
import sys
import types

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from poptorch._base.layout import memory_of
from poptorch._base.pytree.structure import map_only
from poptorch._base.torch_private import fake_tensors
from poptorch._base.torch_private import tracing as private
from poptorch._capture.functions import (
    attention,
    ctc,
    distributions,
    flex_attention,
    hooks,
    int32_indices,
    mixed_precision,
    others,
    packed,
    recurrent,
    repeat,
)
from poptorch._capture.functions import index as functions_index
from poptorch._capture.functions import layers as functions_layers
from poptorch._capture.functions import mask as functions_mask
from poptorch._capture.functions import shapes as functions_shapes
from poptorch._capture.graph import unknown_sizes, zero_gradients
from poptorch._capture.graph.losses import STANDARD, STANDARD_OVERLOADS
from poptorch._capture.loops import functions as functions_loops
from poptorch._capture.record import input_layouts


class Functions(private.TorchFunctionMode):
    """Sends calls of torch functions to their handlers ``(capture, func, *args, **kwargs)``.

    A handler that returns NotImplemented lets torch do it.
    """

    def __init__(self, capture):
        super().__init__()
        self._capture = capture

    def __torch_function__(self, func, types, args=(), kwargs=None):
        refusals = self._capture.refusals
        if refusals is None:
            return self._seen(func, types, args, kwargs)
        try:
            out = self._seen(func, types, args, kwargs)
        except Exception as error:
            return refusals.stand_in(self._capture, func, args, kwargs or {}, error)
        return refusals.derived(self._capture, func, args, kwargs or {}, out)

    def _seen(self, func, types, args, kwargs):
        is_last = func is torch.autograd.grad and self._capture.recorder.in_backward
        if not is_last and _holds_real((args, kwargs)):
            args, kwargs = map_only(torch.Tensor, self._capture.recorder.stand_in,
                                    (args, kwargs or {}))
        bodies = self._capture.bodies
        if not bodies or _is_question(func):
            return self._called(func, types, args, kwargs)
        args, kwargs = map_only(torch.Tensor, bodies.inside, (args, kwargs or {}))
        try:
            return self._called(func, types, args, kwargs)
        except RuntimeError as error:
            if (refusal := bodies.refusal(error, (args, kwargs))) is None:
                raise
            raise refusal from None

    def _called(self, func, types, args, kwargs):
        try:
            return self._attempted(func, types, args, kwargs)
        except Exception as error:
            for positional, named in int32_indices.in_int64(func, args, kwargs or {}, error):
                with contextlib.suppress(Exception):
                    return self._attempted(func, types, positional, named)
            raise

    def _attempted(self, func, types, args, kwargs):
        out = self._result(func, types, args, kwargs or {})
        if func in LOSSES:
            self._capture.losses.mark_standard(out, func, args, kwargs or {})
        self._capture.recorder.picks.write_back()
        return out

    def _result(self, func, types, args, kwargs):
        handler, out = HANDLERS.get(func), NotImplemented
        if handler is None and isinstance(func, private.HigherOrderOperator):
            handler = HIGHER_ORDER.get(func.name(), _refuse_higher_order)
        elif func in WHOLE and private.is_transformed():
            handler = _by_torch
        unknown = unknown_sizes.argument_of(types, args, kwargs) if types else None
        if unknown is not None and func not in TAKE_UNKNOWN_SIZES:
            return unknown.call(self._capture, func, args, kwargs)
        if handler is not None:
            out = handler(self._capture, func, *args, **kwargs)
        if out is NotImplemented:
            if unknown is not None:
                raise unknown.refusal(func)
            out = func(*args, **kwargs)
        return out


def _holds_real(value) -> bool:
    """Whether there are tensors with data among the arguments of a call."""
    kind = type(value)
    if kind is tuple or kind is list:
        return any(map(_holds_real, value))
    if kind is dict:
        return any(map(_holds_real, value.values()))
    return isinstance(value, torch.Tensor) and not fake_tensors.is_fake(value)


# The attributes of tensors that are tensors.
_VIEWS = frozenset({"T", "mT", "H", "mH", "real", "imag", "data"})


def _is_question(func) -> bool:
    """Whether a function reads an attribute that is not a tensor."""
    return getattr(func, "__name__", "") == "__get__" and func.__self__.__name__ not in _VIEWS


def _by_torch(capture, func, /, *args, **kwargs):
    """By torch's own operations. Those for whole layers have no rules here."""
    if func is F.batch_norm and (replicas := capture.statistics_replicas()) > 1:
        raise capture.recorder.error(
            f"[SyncBatchNorm] torch.func transforms a layer that uses the statistics of {replicas} "
            f"replicas, which is not implemented. Use BatchNorm there, or call the layer outside.")
    with private.without_onednn(), sdpa_kernel(SDPBackend.MATH):
        return func(*args, **kwargs)


def _with(name: str):
    """Handler of a function that does not pass a mode its argument ``name``."""
    def complete(capture, func, /, *args, **kwargs):
        frame = sys._getframe(1)
        while frame is not None and frame.f_code is not func.__code__:
            frame = frame.f_back
        if frame is not None and frame.f_locals[name] is not None:
            kwargs = {**kwargs, name: frame.f_locals[name]}
        return func(*args, **kwargs)

    return complete


def _values(capture, func, /, *args, **kwargs):
    if func is torch.Tensor.tolist:  # the others give the memory, in which changes would be missed
        args = capture.recorder.values.known(args)
    if fake_tensors.is_fake(args[0]):
        raise capture.recorder.values.error(f"Tensor.{func.__name__}()", args)
    if isinstance(args[0], unknown_sizes.UnknownSize):
        return NotImplemented
    capture.recorder.values.check(args[0], f"Tensor.{func.__name__}()")
    with private.without_modes():
        return func(*args, **kwargs)


def _address(capture, func, /, *args, **kwargs):
    raise capture.recorder.error(
        "[capture] Python code asks for the address of a tensor (Tensor.data_ptr()), which is "
        "decided when forward has been compiled. To know whether two tensors are one, use `is`.")


def _register_hook(capture, func, tensor, hook):
    capture.bodies.note_hook()
    return func(tensor, hooks.of_capture(hook) if callable(hook) else hook)


def _is_set_to(capture, func, one, tensor):
    """torch's compares addresses, which do not exist yet."""
    return _is_same_memory(one, tensor)


def _deepcopy(capture, func, tensor, memo):
    """A copy in memory of its own; torch's own would refer to the node of the tensor."""
    if id(tensor) in memo or not fake_tensors.is_fake(tensor) or not tensor.is_leaf:
        return NotImplemented
    with torch.no_grad():
        made = memo[id(tensor)] = tensor.clone()
    made.requires_grad_(tensor.requires_grad)
    for name, value in vars(tensor).items():
        if name not in vars(made):
            setattr(made, name, copy.deepcopy(value, memo))
    return made


def _set_data(capture, func, tensor, value):
    if tensor.dtype is value.dtype and _is_same_memory(tensor, value):
        return  # `x.data -= y` has changed it, and assigns it to itself
    raise capture.recorder.error(
        "[capture] forward assigns to the `.data` of a tensor, which cannot be recorded. Change "
        "the tensor in place: `with torch.no_grad(): tensor.copy_(value)`.")


def _is_same_memory(one, other) -> bool:
    return fake_tensors.is_fake(one) and fake_tensors.is_fake(other) \
        and memory_of(one) == memory_of(other) \
        and (one.shape, one.stride(), one.storage_offset()) \
        == (other.shape, other.stride(), other.storage_offset())


def _storage_offset(capture, func, tensor):
    if capture.recorder.picks.lies_by_value(tensor):
        raise capture.recorder.values.error("Tensor.storage_offset() of x[i]")
    return NotImplemented


def _backward(capture, func, /, *args, **kwargs):
    raise capture.recorder.error(
        "[capture] forward calls backward(); the executor of poptorch.trainingModel computes the "
        "gradients and updates the weights itself. Return the loss, and leave backward() and the "
        "optimizer's step() out.")


def _composite(capture, func, /, *args, **kwargs):
    """A function of torch whose own calls have handlers: its body runs under the mode again."""
    with capture.functions:
        return without_overrides(func)(*args, **kwargs)


def _gradients(capture, func, /, *args, **kwargs):
    """By ``_composite``, as checkpoints recompute in it.

    Without gradient mode, in which inference is captured, torch takes formulas that cannot be
    differentiated: the function whose gradient it is may be transformed once more, and what it
    gives would be wrong.
    """
    is_needed = not capture.training and private.is_transformed() and len(args) <= 3
    if not is_needed or torch.is_grad_enabled():
        return _composite(capture, func, *args, **kwargs)
    with torch.enable_grad():
        return _composite(capture, func, *args, **{
            **kwargs, "create_graph": True, "retain_graph": True})


@functools.cache
def without_overrides(func):
    """``func`` without the check that would send it to the mode once more."""
    names = dict(func.__globals__)
    names["has_torch_function"] = lambda *tensors: False
    names["has_torch_function_unary"] = names["has_torch_function_variadic"] = lambda *t: False
    copy = types.FunctionType(func.__code__, names, func.__name__, func.__defaults__)
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy


def _invoke_subgraph(capture, func, subgraph, name, *operands):
    """What ``torch.compiler.nested_compile_region`` becomes in a graph: it runs in place."""
    with capture.functions:
        return subgraph(*operands)


def _custom_function(capture, func, /, *args, **kwargs):
    """A torch.autograd.Function within what torch.func transforms: one level is taken away, and the
    user's methods run under the mode."""
    with capture.functions:
        return private.without_overrides(func, *args, **kwargs)


def _refuse_higher_order(capture, func, /, *args, **kwargs):
    raise capture.recorder.error(
        f"[{func.name()}] forward calls torch.ops.higher_order.{func.name()}, an operation on "
        f"functions, which is not implemented. Use operations on tensors (torch.where for a "
        f"choice), or `if` and loops of Python where values of tensors do not decide.")


# By name: torch makes these operators when they are first used.
HIGHER_ORDER = {"custom_function_call": _custom_function, "invoke_subgraph": _invoke_subgraph,
                **flex_attention.HIGHER_ORDER, **functions_loops.HIGHER_ORDER}

# Functions whose handlers call poptorch's operations. torch.func has no rules for these, so torch's
# own operations are recorded where it transforms the functions.
WHOLE = {*attention.HANDLERS, *ctc.HANDLERS, *functions_layers.HANDLERS,
         F.embedding_bag} \
    - {F.rrelu, torch.rrelu, torch.rrelu_}

# Functions whose handlers take tensors of unknown sizes.
TAKE_UNKNOWN_SIZES = {torch.Tensor.__setitem__, *functions_mask.WRITES,
                      *packed.HANDLERS, *recurrent.HANDLERS}

LOSSES = {*STANDARD, *STANDARD_OVERLOADS}

HANDLERS = {
    F.l1_loss: _with("weight"),
    torch.chain_matmul: _with("out"),
    torch.Tensor.backward: _backward,
    torch.Tensor.numpy: _values,
    torch.Tensor.tolist: _values,
    torch.Tensor.__deepcopy__: _deepcopy,
    torch.Tensor.__array__: _values,
    torch.Tensor.__dlpack__: _values,
    torch.Tensor.data_ptr: _address,
    torch.Tensor.is_set_to: _is_set_to,
    torch.Tensor.storage_offset: _storage_offset,
    torch.Tensor.register_hook: _register_hook,
    torch.Tensor.data.__set__: _set_data,
    F.affine_grid: _composite,
    F.multi_head_attention_forward: _composite,
    torch.autograd.grad: _gradients,
    **ctc.HANDLERS,
    **distributions.HANDLERS,
    **functions_index.HANDLERS,
    **functions_layers.HANDLERS,
    **functions_mask.HANDLERS,
    **mixed_precision.HANDLERS,
    **others.HANDLERS,
    **packed.HANDLERS,
    **attention.HANDLERS,
    **recurrent.HANDLERS,
    **repeat.HANDLERS,
    **functions_shapes.HANDLERS,
    **input_layouts.HANDLERS,
    **zero_gradients.HANDLERS,
}

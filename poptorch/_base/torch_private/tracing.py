"""Every use that capture makes of torch's private interfaces; a test names each one."""

import contextlib
import sys
from unittest import mock

import torch
from torch._decomp import decomposition_table as decomposition_table
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch._higher_order_ops import utils as higher_order
from torch._ops import HigherOrderOperator as HigherOrderOperator
from torch._ops import OpOverload as OpOverload
from torch._prims_common import suggest_memory_format as suggest_memory_format
from torch.nn.modules import transformer
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm  # noqa: F401
from torch.overrides import TorchFunctionMode as TorchFunctionMode
from torch.utils import checkpoint as checkpointing
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils.checkpoint import _StopRecomputationError as StopRecomputation  # noqa: F401

from poptorch._base.layout import has_symbolic_sizes
from poptorch._base.pytree.structure import map_only

_FRONT = torch._C.DispatchKey.FuncTorchDynamicLayerFrontMode
_BACK = torch._C.DispatchKey.FuncTorchDynamicLayerBackMode

recurrent_functions = torch._VF  # lstm, gru, rnn_tanh and rnn_relu as the modules call them


class DispatchMode(TorchDispatchMode):
    """A dispatch mode that does without torch._dynamo, whose import takes seconds."""

    @classmethod
    def _should_skip_dynamo(cls):
        return False


@contextlib.contextmanager
def causal_masks_unread():
    """Transformers take a mask for causal where that is said, and do not read its values."""
    def is_said(mask, is_causal=None, size=None):
        return is_causal is True

    with mock.patch.object(transformer, "_detect_is_causal_mask", is_said):
        yield


@contextlib.contextmanager
def padding_as_nested():
    """Rows of padding are zero after the layers of a transformer's encoder, as in eager's nested
    tensors, which it takes without gradients where all padding is at the ends of the sequences."""
    forward = transformer.TransformerEncoder.forward

    def padded(self, src, mask=None, src_key_padding_mask=None, is_causal=None):
        layer, norm = self.layers[0], self.norm
        ignored = src_key_padding_mask
        if ignored is None or mask is not None or src.dim() != 3 or layer.training \
                or not getattr(self, "use_nested_tensor", False) or not _is_inferred(layer, src):
            return forward(self, src, mask, ignored, is_causal)
        self.norm = None
        try:
            out = forward(self, src, mask, ignored, is_causal)
        finally:
            self.norm = norm
        ignored = ignored if ignored.dtype is torch.bool else ignored != 0
        if getattr(self, "mask_check", True):
            ignored = ignored & ~(ignored[:, :-1] & ~ignored[:, 1:]).any()
        out = torch.where(ignored.unsqueeze(2), out.new_zeros(()), out)
        return out if norm is None else norm(out)

    with mock.patch.object(transformer.TransformerEncoder, "forward", padded):
        yield


def _is_inferred(layer, src) -> bool:
    """Whether eager may compute the layer by its fused kernel: not with gradients or autocast."""
    tensors = [src, *layer.parameters()]
    return torch.backends.mha.get_fastpath_enabled() and not torch.is_autocast_enabled() \
        and not (torch.is_grad_enabled() and any(x.requires_grad for x in tensors))


def forward_sequence_number() -> int:
    """Number of the newest autograd node: that of the operation being dispatched, if it has one."""
    return torch.autograd._get_sequence_nr() - 1


def backward_sequence_number() -> int | None:
    """Number of the autograd node whose gradient is being computed, None outside of one."""
    node = torch._C._current_autograd_node()
    return None if node is None else node._sequence_nr()


def is_traced() -> bool:
    """Whether make_fx is tracing what runs."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None


def is_composite(overload) -> bool:
    """Whether the operation is composed of others, and takes its gradient from theirs."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), key)


def has_cpu_kernel(overload) -> bool:
    """Whether an operation has one of its own, which eager calls even where it is composite."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), "CPU")


def overloads_of(packet) -> list:
    """The overloads that torch dispatches; others are of TorchScript alone."""
    overloads = [getattr(packet, name) for name in packet.overloads()]
    return [op for op in overloads if torch._C._dispatch_has_kernel(op.name())]


def decompose_composite(overload, args, kwargs):
    """Runs the operations that a composite operation consists of."""
    return overload.decompose(*args, **kwargs)


def without_overrides(operator: HigherOrderOperator, *args, **kwargs):
    """Calls an operator on functions as if no function mode were entered; within, they are."""
    keys = torch._ops._compute_keyset(args, kwargs, operator.non_fallthrough_keys)
    return operator.dispatch(keys.highestPriorityTypeId(), *args, **kwargs)


@contextlib.contextmanager
def without_modes():
    """Real tensors and the real generator, during a capture."""
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        yield


def is_transformed() -> bool:
    """Whether a function runs that ``torch.func`` transforms, or that is differentiated forward."""
    return torch._C._functorch.peek_interpreter_stack() is not None or is_differentiated_forward()


def is_differentiated_forward() -> bool:
    """Whether tensors may have tangents, which operations give to their results."""
    return torch.autograd.forward_ad._current_level >= 0


def below_function_transforms():
    """What is called is not transformed: an operation may be met where ``torch.func`` acts."""
    if not torch._C._dispatch_tls_is_dispatch_key_included(_FRONT):
        return contextlib.nullcontext()
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_FRONT).add(_BACK))


def without_function_transforms():
    """Outside of the functions that ``torch.func`` transforms just now."""
    return temporarily_clear_interpreter_stack()


def without_transforms(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that one of a function which ``torch.func`` transforms stands for."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


@contextlib.contextmanager
def without_compiling(is_here):
    """Where ``is_here()``, code that torch.compile has compiled runs as it was written. So do the
    operators of torch.cond and its like, which torch compiles itself."""
    # Imported late, as it takes seconds; the fake mode of a capture has imported it already.
    from torch._dynamo import eval_frame
    from torch.nn.attention import flex_attention  # it imports torch._dynamo, too

    cond = sys.modules["torch._higher_order_ops.cond"]  # torch names the function so, too

    def as_written(function, args, kwargs=None):
        return function(*args, **(kwargs or {}))

    warn = flex_attention._warn_once

    def warn_once(warning_id, *args, **kwargs):
        if warning_id != "flex_attention_performance":  # it asks for torch.compile
            warn(warning_id, *args, **kwargs)

    instead = [
        (higher_order, "_hop_compile_and_call", as_written),
        (cond, "validate_subgraph_args_types", lambda operands: None),  # containers, too
        (eval_frame, "_callback_from_stance", lambda callback: None),
        (flex_attention, "_warn_once", warn_once),
        # It refuses gradients on the CPU.
        (flex_attention, "_validate_device", lambda query, key, value: None),
        # With fullgraph=True it is an error where no frame is compiled, unless frames are counted
        # already: those are then someone else's.
        (eval_frame, "set_fullgraph_compiled_frame_count", lambda count: 0),
        # Asked by compiled modules only, which warn of hooks of all modules: capture has some.
        (torch.nn.modules.module, "_has_any_global_hook", lambda: False),
    ]
    with contextlib.ExitStack() as stack:
        for owner, name, here in instead:
            either = _either(is_here, here, getattr(owner, name))
            stack.enter_context(mock.patch.object(owner, name, either))
        yield


def _either(is_here, here, elsewhere):
    return lambda *args, **kwargs: (here if is_here() else elsewhere)(*args, **kwargs)


@contextlib.contextmanager
def without_reentrant_checkpoints(is_here):
    """Where ``is_here()``, ``checkpoint(..., use_reentrant=True)``, the default, recomputes as with
    False: what it calls ``backward()`` for is part of the one backward pass. Without an argument
    that requires grad nothing of it gets a gradient, as in eager."""
    class Recomputed:
        @staticmethod
        def apply(function, preserve_rng_state, *args):
            if not is_here():
                return reentrant.apply(function, preserve_rng_state, *args)
            if not any(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args):
                checkpointing.check_backward_validity(args)  # it warns
                with torch.no_grad():
                    return function(*args)
            return _joined(checkpointing.checkpoint(function, *args, use_reentrant=False,
                                                    preserve_rng_state=preserve_rng_state))

    reentrant = checkpointing.CheckpointFunction
    with mock.patch.object(checkpointing, "CheckpointFunction", Recomputed):
        yield


@contextlib.contextmanager
def without_onednn():
    """Layers are not computed whole by oneDNN. (Torch's own manager warns of other flags.)"""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


class _Joined(torch.autograd.Function):
    """Copies of tensors. Once one of them gets a gradient, those that get none have zeros."""

    @staticmethod
    def forward(ctx, *tensors):
        return tuple(map(torch.clone, tensors))

    @staticmethod
    def backward(ctx, *gradients):
        return gradients


def _joined(results):
    """What a function returned; all results are one node of autograd."""
    if not isinstance(results, tuple):
        return results
    places = [i for i, x in enumerate(results) if isinstance(x, torch.Tensor) and x.requires_grad]
    if len(places) < 2:
        return results
    joined = dict(zip(places, _Joined.apply(*(results[i] for i in places))))
    return tuple(joined.get(i, x) for i, x in enumerate(results))


@contextlib.contextmanager
def without_saved_tensors_hooks():
    """What autograd saves meanwhile is not given to hooks, such as those of a checkpoint."""
    entered = []
    while (hooks := torch._C._autograd._top_saved_tensors_default_hooks(False)) is not None:
        entered.append(hooks)
        torch._C._autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for hooks in reversed(entered):
            torch._C._autograd._push_saved_tensors_default_hooks(*hooks)


@contextlib.contextmanager
def without_dispatch_modes():
    """The same, but functions of torch and dispatch modes may be entered again."""
    entered = torch.overrides._get_current_function_mode_stack()
    with _disable_current_modes(), contextlib.ExitStack() as stack:
        for _ in entered:
            stack.enter_context(torch.overrides._pop_mode_temporarily())
        yield


@contextlib.contextmanager
def own_function_modes():
    """Where functions of torch are plain, modes that are entered in here see them; no others do."""
    with torch._C._EnableTorchFunction(), contextlib.ExitStack() as stack:
        for _ in torch.overrides._get_current_function_mode_stack():
            stack.enter_context(torch.overrides._pop_mode_temporarily())
        yield


_INCLUDED = torch._C._dispatch_tls_local_include_set()
_EXCLUDED = torch._C._dispatch_tls_local_exclude_set()


@contextlib.contextmanager
def as_in_eager(keeps_gradients: bool):
    """Within an operator, what holds outside of all operators: autograd and autocast as for the
    user's own code."""
    with torch._C._ForceDispatchKeyGuard(_INCLUDED, _EXCLUDED), \
            torch.inference_mode(False), torch.set_grad_enabled(keeps_gradients):
        yield


def has_fused_attention(*arguments, **named) -> bool:
    """Whether eager has one kernel for scaled_dot_product_attention of such operands, the arguments
    of ``torch._fused_sdp_choice``. Its result has the strides of the query."""
    if any(map(has_symbolic_sizes, (*arguments, *named.values()))):
        return False

    def real(tensor):
        like = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
        return like.requires_grad_(tensor.requires_grad)

    is_enabled = torch.is_grad_enabled()
    with without_modes(), torch.set_grad_enabled(is_enabled):
        arguments, named = map_only(torch.Tensor, real, (arguments, named))
        return torch._fused_sdp_choice(*arguments, **named) != 0


def has_gradient(tensor: torch.Tensor) -> bool:
    """Whether a tensor requires grad, and not only says so, as a view does that was made without
    gradients of one that does."""
    if not tensor.requires_grad or tensor.grad_fn is not None:
        return tensor.requires_grad
    return not (tensor._is_view() and tensor._base.requires_grad)


def autograd_nodes(root):
    """All autograd nodes from which values flow into ``root``, itself first; none for None."""
    seen, todo = {root}, [] if root is None else [root]
    while todo:
        node = todo.pop()
        yield node
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                todo.append(following)

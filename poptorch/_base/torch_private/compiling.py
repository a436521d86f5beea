"""Private names of torch that a backend of torch.compile needs. Importing them takes seconds."""

import itertools
from collections.abc import Callable

import torch
from torch._dynamo.backends.common import aot_autograd as aot_autograd
from torch._dynamo.convert_frame import compile_lock as compile_lock
from torch._functorch._aot_autograd.schemas import PlainTensorMeta
from torch._functorch.partitioners import (
    min_cut_rematerialization_partition as min_cut_rematerialization_partition,
)
from torch._inductor import inductor_prims

_numbers = itertools.count()

# A capture replaces attributes and adds hooks. Another thread that meets them must not trace them.
for _package in ("poptorch._guards", "poptorch._capture.graph"):
    torch._dynamo.trace_rules.add(_package)

# Dynamo calls it in place of lerp, addcmul and addcdiv with a number that is a tensor.
multiply_add = inductor_prims.fma


def boxed(function):
    """Marks a function that takes its arguments in one list, which it may empty."""
    function._boxed_call = True
    return function


def backward_at_once():
    """A context in which AOTAutograd passes the backward graph on right after the forward graph."""
    return torch._functorch.config.patch(force_non_lazy_backward_lowering=True)


def metadata():
    """What AOTAutograd found out about the graph that is being compiled."""
    return torch._guards.TracingContext.get().fw_metadata


def is_direct(metadata, arguments: int) -> bool:
    """Whether the graphs take the ``arguments`` tensors of a call and give its results as they are:
    AOTAutograd has nothing to do before or after them."""
    kinds = (*metadata.subclass_inp_meta, *metadata.subclass_fw_graph_out_meta,
             *metadata.subclass_tangent_meta)
    return (len(metadata.input_info) == arguments
            and all(isinstance(kind, PlainTensorMeta) for kind in kinds)
            and all(issubclass(info.raw_type, torch.Tensor) for info in metadata.output_info)
            and metadata.grad_enabled_mutation is None
            and not any(getattr(metadata, name) for name in _HANDLED_BY_AOT)
            and not getattr(metadata, _ASYNCHRONOUS_INPUTS))


# Attributes of the metadata: what AOTAutograd does in each call, if it has anything to do.
_HANDLED_BY_AOT = (
    "mutated_inp_runtime_indices", "mutated_graph_handled_indices", "aliased_out_indices",
    "num_intermediate_bases", "tokens", "num_backward_tokens", "is_rng_op_functionalized",
    "num_graphsafe_rng_states", "num_symints_saved_for_bw", "num_opaque_objects_saved_for_bw",
    "num_tensors_saved_with_no_vc_check",
    "indices_of_inputs_that_requires_grad_with_mutations_in_bw")
# Another name since torch 2.14.
_ASYNCHRONOUS_INPUTS = ("act_input_paths" if torch.__version__ >= "2.14" else "act_input_indices")


def dimension_order(traced: torch.Tensor) -> tuple[int, ...] | None:
    """The dimensions of a traced tensor, from the largest stride; None: row-major."""
    strides = [stride if isinstance(stride, int) else stride.node.hint
               for stride in traced.stride()]
    order = tuple(sorted(range(len(strides)), key=lambda dim: -strides[dim]))
    return None if order == tuple(range(len(strides))) else order


class _TracingSettings:
    """Settings of Dynamo while it traces and calls what ``compile`` compiles."""

    # Recurrent layers are traced, and a call checks whether hooks were added or removed. Calls
    # make no spans of Dynamo's for the profiler.
    _change = staticmethod(torch._dynamo.config._make_closure_patcher(
        allow_rnn=True, skip_nnmodule_hook_guards=False, record_runtime_overhead=False))

    def __enter__(self):
        self._revert = self._change()

    def __exit__(self, *_):
        self._revert()


def compile(function: Callable, backend: Callable, recompile_limit: int) -> Callable:
    """``torch.compile`` with ``_TracingSettings`` and a cache of its own."""
    def called(graph, inputs):
        return backend(graph, inputs)

    called.backend_ctx_ctor = _TracingSettings
    return torch._dynamo.optimize(
        backend=called, recompile_limit=recompile_limit, isolate_recompiles=True)(function)


def set_call(module: torch.nn.Module, make: Callable[[Callable], Callable]) -> None:
    """Lets calls of a module run ``make(call)``, where ``call`` runs its hooks and ``forward``.

    ``Module.compile`` does the same, but does not trace the modules of torch.nn.
    """

    def call(*args, **kwargs):
        return module._call_impl(*args, **kwargs)

    # Dynamo learns by file, line and name which sizes change: those of one module only.
    call.__code__ = call.__code__.replace(co_name=f"call_{next(_numbers)}")
    module._compiled_call_impl = make(call)

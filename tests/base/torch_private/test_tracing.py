"""The private parts of torch that capture stands on: a new torch fails here first, by name."""

from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch._higher_order_ops.invoke_subgraph import invoke_subgraph
from torch.nn.attention import flex_attention
from torch.utils import checkpoint as checkpointing

from poptorch._base.torch_private import fake_tensors
from poptorch._base.torch_private import tracing as private


@pytest.fixture
def mode():
    return fake_tensors.new_fake_mode()


# What the module imports for itself.
_OWN = {"TorchDispatchMode", "has_symbolic_sizes", "map_only",
        "temporarily_clear_interpreter_stack"}


def test_every_name_has_a_test():
    tested = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    for name, value in vars(private).items():
        if not (name.startswith("_") or name in _OWN or isinstance(value, ModuleType)):
            assert f"private.{name}" in tested, f"torch_private.tracing.{name} has no test"


def test_transformers_ask_whether_a_mask_is_causal(mode):
    layers = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(4, 2), 1,
                                         enable_nested_tensor=False)
    with mode:
        x, mask = torch.ones(3, 1, 4), torch.zeros(3, 3)
    with pytest.raises(fake_tensors.DataDependentOutputException), mode:
        layers(x, mask)
    with mode, private.causal_masks_unread():
        assert layers(x, mask).shape == (3, 1, 4)


def test_dispatch_modes_see_operations_and_nest():
    class Names(private.DispatchMode):
        def __init__(self):
            super().__init__()
            self.seen = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen.append(str(func))
            if "mm" in self.seen[-1]:
                with self:
                    args[0].neg()
            return func(*args, **(kwargs or {}))

    with Names() as names:
        torch.ones(2, 2) @ torch.ones(2, 2)
    assert names.seen[-2:] == ["aten.mm.default", "aten.neg.default"]


def test_torch_function_modes_see_functions():
    class Names(private.TorchFunctionMode):
        seen = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.seen.append(func)
            return func(*args, **(kwargs or {}))

    functions = [torch.nn.functional.dropout, private.recurrent_functions.lstm,
                 torch.Tensor.__float__]
    with Names():
        x = torch.nn.functional.dropout(torch.ones(1))
        float(x)
        torch.nn.LSTM(1, 1)(x[None])
    assert all(f in Names.seen for f in functions)


def test_without_modes_gives_real_tensors(mode):
    with mode, private.without_modes():
        assert type(torch.ones(1)) is torch.Tensor


def test_sequence_numbers_join_forward_and_backward():
    seen = {}

    class Numbers(private.DispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            backward = private.backward_sequence_number()
            number = private.forward_sequence_number() if backward is None else backward
            seen[str(func), backward is not None] = number
            return func(*args, **(kwargs or {}))

    x = torch.ones(2, requires_grad=True)
    with Numbers():
        y = torch.tanh(x).exp()
        torch.autograd.grad(y, x, torch.ones(2))
    assert seen["aten.tanh.default", False] == seen["aten.tanh_backward.default", True]
    assert seen["aten.exp.default", False] == seen["aten.mul.Tensor", True]
    assert private.backward_sequence_number() is None


def test_autograd_graph_can_be_walked():
    x = torch.ones(2, requires_grad=True)
    y = torch.tanh(x) + x.exp()
    names = {node.name() for node in private.autograd_nodes(y.grad_fn)}
    assert {"AddBackward0", "TanhBackward0", "ExpBackward0"} <= names
    assert list(private.autograd_nodes(None)) == []


def test_views_without_gradients_say_that_they_require_grad():
    x = torch.ones(2, requires_grad=True) * 2
    with torch.no_grad():
        view = x.view(2, 1)
    assert view.requires_grad and not private.has_gradient(view)
    part = torch.ones(4)[:2].requires_grad_()
    for tensor in (x, x.view(1, 2), part, torch.nn.Parameter(torch.ones(2))):
        assert private.has_gradient(tensor)
    assert not private.has_gradient(torch.ones(2)[:1])


def test_composite_operations():
    aten = torch.ops.aten
    assert private.is_composite(aten.linear.default)
    assert not private.is_composite(aten.mm.default)
    assert private.has_cpu_kernel(aten.silu_backward.default)
    assert private.is_composite(aten.silu_backward.default)
    assert not private.has_cpu_kernel(aten.linear.default)
    x = torch.ones(2, 2)
    assert torch.equal(private.decompose_composite(aten.matmul.default, (x, x), {}), x @ x)


def test_overloads_of_torchscript_are_left_out():
    found = private.overloads_of(torch.ops.aten.select)
    assert torch.ops.aten.select.int in found and all(op._overloadname != "t" for op in found)


def test_batch_norms_have_a_common_class():
    assert isinstance(torch.nn.BatchNorm2d(3), private.BatchNorm)


def test_torchs_decompositions_are_made_of_aten():
    function = private.decomposition_table[torch.ops.aten.pixel_shuffle.default]
    assert function(torch.ones(1, 4, 1, 1), 2).shape == (1, 1, 2, 2)


def test_memory_formats():
    images = torch.ones(2, 3, 4, 5)
    assert private.suggest_memory_format(images) is torch.contiguous_format
    last = images.contiguous(memory_format=torch.channels_last)
    assert private.suggest_memory_format(last) is torch.channels_last
    assert private.suggest_memory_format(images.permute(1, 0, 2, 3)) is torch.contiguous_format


def test_attention_has_one_kernel_or_several():
    q = torch.ones(1, 2, 3, 4)
    assert private.has_fused_attention(q, q, q, None, 0.0, False, scale=None, enable_gqa=False)
    assert not private.has_fused_attention(q, q, q, None, 0.5, False)


def test_operators_on_functions_within_transforms():
    class Twice(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

    met = []

    class Mode(private.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if not isinstance(func, private.HigherOrderOperator):
                return func(*args, **(kwargs or {}))
            met.append(private.is_transformed())
            with self:
                return private.without_overrides(func, *args)

    with Mode():
        out = torch.vmap(Twice.apply)(torch.ones(3))
    assert out.tolist() == [2.0] * 3 and met == [True]


def test_below_function_transforms():
    front, found = torch._C.DispatchKey.FuncTorchDynamicLayerFrontMode, []

    def function(x):
        with private.below_function_transforms():
            found.append(torch._C._dispatch_tls_is_dispatch_key_excluded(front))
            inner = torch.arange(3)
        assert not torch._C._functorch.is_batchedtensor(inner)
        found.append(torch._C._dispatch_tls_is_dispatch_key_excluded(front))
        return x + inner.sum()

    assert torch.equal(torch.vmap(function)(torch.zeros(2, 4)), torch.full((2, 4), 3.0))
    assert found == [True, False]


def test_without_onednn():
    before = torch._C._get_mkldnn_enabled()
    with private.without_onednn():
        assert not torch._C._get_mkldnn_enabled()
    assert torch._C._get_mkldnn_enabled() is before


def test_differentiated_forward():
    found = []

    def function(x):
        found.append((private.is_differentiated_forward(), private.is_transformed()))
        return x * 2

    function(torch.ones(2))
    torch.func.jvp(function, (torch.ones(2),), (torch.ones(2),))
    with torch.autograd.forward_ad.dual_level():
        function(torch.autograd.forward_ad.make_dual(torch.ones(2), torch.ones(2)))
    torch.func.grad(lambda x: function(x).sum())(torch.ones(2))
    assert found == [(False, False), (True, True), (True, True), (False, True)]


def test_higher_order_operators():
    assert isinstance(invoke_subgraph, private.HigherOrderOperator)
    assert invoke_subgraph.name() == "invoke_subgraph"


def test_what_is_saved_is_not_given_to_hooks():
    seen = []
    x = torch.ones(2, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
        with private.without_saved_tensors_hooks():
            x.sin()
        assert not seen
        x.sin()
        assert len(seen) == 1


def test_operations_on_functions_without_compiling():
    """``cond`` is called as it is, and finds no implementation for a branch that has an effect on
    Python's variables only where it is compiled."""
    calls = []

    def then(x):
        calls.append(x)
        return x.sin()

    with private.without_compiling(lambda: True):
        torch.cond(torch.tensor(True), then, torch.cos, (torch.ones(2),))
    assert len(calls) == 1
    with private.without_compiling(lambda: False), pytest.raises(Exception, match="side effect"):
        torch.cond(torch.tensor(True), then, torch.cos, (torch.ones(2),))


@pytest.mark.parametrize("settings", [{}, {"fullgraph": True}])
def test_functions_without_compiling(settings):
    graphs = []
    function = torch.compile(torch.nn.functional.silu, backend=lambda graph, _: graphs.append(graph)
                             or graph.forward, **settings)
    with private.without_compiling(lambda: True):
        function(torch.ones(2))
    assert not graphs
    with private.without_compiling(lambda: False):
        function(torch.ones(2))
    assert len(graphs) == 1


def test_flex_attention_without_compiling(monkeypatch):
    """It calls its operator on functions without a warning that asks for torch.compile, and for
    tensors that require gradients."""
    monkeypatch.setattr(flex_attention, "_WARNINGS_SHOWN", set())
    q = torch.randn(1, 1, 2, 3, requires_grad=True)
    with pytest.raises(NotImplementedError, match="backward on CPU"):
        flex_attention.flex_attention(q, q, q)
    with private.without_compiling(lambda: True):
        assert flex_attention._validate_device(q, q, q) is None
        flex_attention.flex_attention(*[q.detach()] * 3)


@pytest.mark.filterwarnings("ignore:None of the inputs")
@pytest.mark.parametrize("is_here", [True, False])
def test_without_reentrant_checkpoints(is_here):
    x = torch.ones(2, requires_grad=True)
    before = checkpointing.CheckpointFunction
    with private.without_reentrant_checkpoints(lambda: is_here):
        y = checkpointing.checkpoint(torch.sin, x, use_reentrant=True)
        without_gradient = checkpointing.checkpoint(
            lambda y: x * y, torch.ones(2), use_reentrant=True, preserve_rng_state=False)
    names = {node.name() for node in private.autograd_nodes(y.grad_fn)}
    assert ("CheckpointFunctionBackward" in names) is not is_here
    assert not without_gradient.requires_grad
    assert checkpointing.CheckpointFunction is before


def test_outside_of_modes(mode):
    class Counting(private.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            calls.append(func)
            return func(*args, **(kwargs or {}))

    calls: list = []
    with mode, Counting():
        with private.without_dispatch_modes():
            real = torch.ones(2) + 1
            assert not calls
            with Counting():
                torch.ones(2)
            assert len(calls) == 1
        assert fake_tensors.is_fake(torch.ones(2)) and len(calls) == 2
    assert real.tolist() == [2, 2]


@torch.library.custom_op("poptorch_tests::eager_within", mutates_args=())
def eager_within(x: torch.Tensor) -> torch.Tensor:
    with private.as_in_eager(True):
        y = x.detach().requires_grad_()
        (y * y).sum().backward()
    return y.grad


def test_eager_within_an_operator():
    x = torch.tensor([1.0, 3.0])
    with torch.no_grad(), torch.inference_mode():
        assert eager_within(x).tolist() == [2, 6]


def test_own_function_modes_within_plain_torch():
    class Counting(private.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            calls.append(func)
            return func(*args, **(kwargs or {}))

    calls: list = []
    with Counting(), torch._C.DisableTorchFunction(), private.own_function_modes():
        torch.ones(2) + 1
        assert not calls  # those of the caller see nothing
        with Counting():
            torch.ones(2)
        assert len(calls) == 1


def test_a_checkpoint_stops_its_recomputation():
    found = []

    def part(x):
        try:
            return x.sin()
        except private.StopRecomputation as error:
            found.append(error)
            raise

    torch.utils.checkpoint.checkpoint(part, torch.ones(2).requires_grad_(),
                                      use_reentrant=False).sum().backward()
    assert len(found) == 1

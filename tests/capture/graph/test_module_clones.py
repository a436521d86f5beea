"""What runs while a module is captured is another module; the user's is not touched."""

import copy
import functools
import threading

import pytest
import torch
from torch import nn

import poptorch
from poptorch._base.torch_private import fake_tensors
from poptorch._capture import capture
from tests.capture.common import Function, check_inference, check_training
from tests.capture.reference import evaluate
from tests.helpers import quiet_options


class Paused(nn.Module):
    """Stops during a capture."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)
        self.lstm, self.drop = nn.LSTM(3, 3), nn.Dropout(0.5)
        self.reached, self.go_on = threading.Event(), threading.Event()

    def forward(self, x):
        y = self.lstm(self.drop(self.norm(self.linear(x))))[0]
        if poptorch.isRunningOnIpu():
            self.reached.set()
            assert self.go_on.wait(60)
        return self.lstm(self.linear(y))[0]


def test_another_thread_uses_the_module_while_it_is_captured():
    net = Paused().eval()
    x = torch.rand(4, 3)
    expected = net(x).detach()
    net.train()
    model = poptorch.inferenceModel(net, quiet_options())
    net.eval()
    compiling = threading.Thread(target=model.compile, args=(x,))
    compiling.start()
    assert net.reached.wait(60)
    try:
        assert not any(part.training for part in net.modules())
        found = net(x)
        tensors = [*net.parameters(), *net.buffers(), *net.lstm._flat_weights, found]
    finally:
        net.go_on.set()
        compiling.join()
    assert not any(fake_tensors.is_fake(tensor) for tensor in tensors)
    assert torch.equal(found, expected)
    loss = net(x).sum()
    loss.backward()
    assert net.linear.weight.grad is not None


def plus_one(forward, x):
    return forward(x) + 1


class Led(nn.Module):
    """Reaches its parts by ways other than children."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2)])
        self.in_list, self.scales = list(self.parts), {part: 0.5 for part in self.parts}
        self.twice = functools.partial(self.part, times=2)
        self.nested = [{"me": (self, self.in_list)}]
        self.nested.append(self.nested)
        self.parts[0].parent = self.in_list
        self.method = self.last
        self.parts[2].forward = functools.partial(plus_one, self.parts[2].forward)

    def part(self, x, number, times):
        return self.in_list[number](x) * self.scales[self.parts[number]] * times

    def last(self, x):
        assert self.nested[0]["me"][0] is self and self.parts[0].parent[1] is self.parts[1]
        return self.parts[2](x)

    def forward(self, x):
        y = self.method(self.twice(self.twice(x, 0), 1))
        return y, nn.functional.mse_loss(y, x)


def test_attributes_lead_to_the_same_parts():
    for check in (check_inference, check_training):
        captured = check(Led().double(), torch.rand(3, 2, dtype=torch.float64))
        kinds = [spec.kind for spec in captured.inputs]
        assert kinds.count("param") == 6 and "constant" not in kinds


def test_what_a_closure_holds_is_the_users_module():
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    plain = net[0].forward
    net[0].forward = lambda x: plain(x) + net[1](x)
    net.forward = lambda x: nn.functional.mse_loss(net[0](x), x)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    captured = capture(net, (torch.rand(3, 2),), training=True)
    assert {spec.kind for spec in captured.inputs} == {"input", "param", "buffer"}
    names = [(spec.kind, spec.name) for spec in captured.outputs]
    trained = [name for kind, name in names if kind == "grad"]
    assert trained == [name for name, _ in net.named_parameters()]
    assert ("buffer_update", "1.running_mean") in names
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


class Sets(nn.Module):
    """Sets, changes and deletes attributes in forward."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)
        self.count, self.seen, self.old, self.best = 0, [], 1, None

    def forward(self, x):
        self.count += 1
        self.seen.append(self.count)
        self.a.best, self.best = self.b, [self.a, self.forward]
        self.kept = x
        del self.old
        return self.b(self.a(x))


def test_what_forward_sets_reaches_the_users_module():
    module = Sets()
    seen = module.seen
    capture(module, (torch.ones(1, 2),), training=False)
    assert module.count == 1 and module.seen is seen and seen == [1]
    assert module.a.best is module.b and module.best[0] is module.a
    assert module.best[1].__self__ is module
    assert not hasattr(module, "kept") and not hasattr(module, "old")
    module.old = 2
    assert type(module(torch.ones(1, 2))) is torch.Tensor and module.count == 2


def twice(m, x):
    return x, poptorch.identity_loss((x * m.w).sum() + (x * m.of_closure()).sum(), "sum")


def by_autograd(m, x):
    y = (x * m.w * m.of_closure()).sum()
    return x, poptorch.identity_loss(
        torch.autograd.grad(y, m.w, create_graph=True)[0].sum(), "sum")


@pytest.mark.parametrize("forward", [twice, by_autograd])
def test_a_parameter_of_an_attribute_and_of_a_closure_is_one(forward):
    module = Function(forward, {"w": torch.ones(3).double()})
    module.w.register_hook(lambda gradient: gradient.clamp(max=1))
    held = [module]
    module.of_closure = lambda: held[0].w
    expected = torch.autograd.grad(module(torch.ones(3).double())[1], module.w)[0]
    captured = capture(module, (torch.ones(3).double(),), training=True)
    found = evaluate(captured, [torch.ones(3).double()])[1]["grad"]["w"]
    assert torch.equal(found, expected)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w):
        ctx.save_for_backward(w)
        return w * w

    @staticmethod
    def backward(ctx, gradient):
        return 2 * ctx.saved_tensors[0] * gradient


def of_parameter(squared):
    return Function(lambda m, x: (x, poptorch.identity_loss(
        (m.w * x).sum() + squared(m), "sum")), {"w": torch.tensor([1.0, 2.0]).double()})


def check_gradient(module, x):
    expected = torch.autograd.grad(module(x)[1], module.w)[0]
    captured = capture(module, (x,), training=True)
    assert torch.equal(evaluate(captured, [x])[1]["grad"]["w"], expected)


def test_a_parameter_that_a_function_gets_of_a_closure():
    module = of_parameter(lambda m: Square.apply(w).sum())
    w, x = module.w, torch.tensor([0.5, -0.9]).double()
    check_gradient(module, x)
    w.register_hook(lambda gradient: gradient.clamp(-1, 1))
    with pytest.raises(poptorch.Error, match=(
            r"w has a hook on its gradient \(register_hook\), and forward uses the parameter in "
            "two ways: from the module, and from a closure or a list in a "
            "torch.autograd.Function. The hook would run on two parts of the gradient. Read it "
            "from the module, as self.w, in both places.")):
        capture(module, (x,), training=True)


@pytest.mark.parametrize("squared", [
    lambda m: Square.apply(m.w).sum(), lambda m: (m.held[0] ** 2).sum()],
    ids=["of the module", "no function"])
def test_a_hook_gets_the_whole_gradient(squared):
    module, x = of_parameter(squared), torch.tensor([0.5, -0.9]).double()
    module.held = [module.w]
    module.w.register_hook(lambda gradient: gradient.clamp(-1, 1))
    check_gradient(module, x)


def test_what_a_closure_made_in_forward_holds():
    made = []

    def forward(m, x):
        if not made:
            made.append(lambda y: y * m.w)
        return made[0](x)

    module = Function(forward, {"w": torch.ones(3).double()}, {"b": torch.ones(3)})
    x = torch.ones(3).double()
    for _ in range(2):
        check_inference(module, x)
    assert type(module(x)) is torch.Tensor
    assert type(module.w) is nn.Parameter and type(module.b) is torch.Tensor


def test_layers_in_a_layer_that_forward_makes():
    def forward(m, x):
        m.made = nn.ModuleList([nn.Sequential(m.layer, nn.ReLU())])
        return m.made[0](x)

    module = Function(forward)
    module.layer = nn.Linear(2, 2)
    capture(module, (torch.ones(2),), training=False)
    assert module.made[0][0] is module.layer
    assert torch.equal(module(torch.ones(2)), module.layer(torch.ones(2)).relu())


class Slots(nn.Module):
    __slots__ = ("factor",)

    def __init__(self):
        super().__init__()
        self.factor = 2.0

    def forward(self, x):
        return x * self.factor


def test_modules_with_slots():
    with pytest.raises(poptorch.Error, match=r"Slots keeps factor in slots \(__slots__\), where a "
                                             "change of an attribute is not noticed. Leave"):
        capture(nn.Sequential(Slots()), (torch.ones(2),), training=False)


def adds(m, x):
    m.layer.register_forward_hook(lambda *arguments: None)
    return m.layer(x)


def removes(m, x):
    m.handle.remove()
    return m.layer(x)


@pytest.mark.parametrize("forward", [adds, removes])
def test_hooks_that_forward_adds_or_removes(forward):
    module = Function(forward)
    module.layer = nn.Linear(2, 2)
    module.handle = module.layer.register_forward_hook(lambda *arguments: None)
    with pytest.raises(poptorch.Error, match=(
            r"forward adds or removes a hook \(forward_hooks\) of layer, which decides what the "
            "next call computes. Do it before the model is compiled: if only the first call does "
            "so, call the module once before it is wrapped.")):
        capture(module, (torch.ones(2),), training=False)


def test_hooks_that_only_the_first_call_adds():
    def forward(m, x):
        if not m.has_hook:
            m.layer.register_forward_hook(lambda module, args, out: out * 2)
            m.has_hook = True
        return m.layer(x)

    module = Function(forward)
    module.layer, module.has_hook = nn.Linear(2, 2).double(), False
    module(torch.ones(2).double())
    check_inference(module, torch.ones(2).double())


def test_a_hook_for_one_call():
    def forward(m, x):
        seen = []
        handle = m.layer.register_forward_hook(lambda module, args, out: seen.append(out))
        y = m.layer(x)
        handle.remove()
        return y + seen[0]

    module = Function(forward)
    module.layer = nn.Linear(2, 2).double()
    check_inference(module, torch.ones(2).double())


class Bound(nn.Module):
    """Sets and reads attributes by ways that lead to the user's modules."""

    def __init__(self):
        super().__init__()
        self.linear, self.drop, self.count, self.old = nn.Linear(2, 2), nn.Dropout(0.5), 0, 1
        self.aux = 0.0
        self.linear.register_forward_hook(self.after)
        self.holder = Holder(self)
        self.apply_drop = lambda x: self.drop(x)

    def after(self, module, args, out):
        self.aux = out.pow(2).mean()
        self.count += 1
        del self.old

    def forward(self, x):
        y = self.apply_drop(self.linear(x))
        return y, self.aux, y * self.count, y * self.holder.factor()


class Holder:
    def __init__(self, module):
        self.module, module.factor = module, 2.0

    def factor(self):
        self.module.factor += 1
        return self.module.factor * (2 if hasattr(self.module, "old") else 1)


def test_hooks_closures_and_objects_change_what_runs(capsys):
    module = Bound().eval()
    expected = copy.deepcopy(module)(torch.ones(2))
    model = poptorch.inferenceModel(module, quiet_options())
    for found, value in zip(model(torch.ones(2)), expected, strict=True):
        assert torch.allclose(found, value)
    assert module.aux == 0.0 and module.count == 1 and module.factor == 3.0
    assert not hasattr(module, "old")
    assert "forward keeps a tensor in aux, but" in capsys.readouterr().err
    module.old = 1
    for found, value in zip(module(torch.ones(2)), expected, strict=True):
        assert not fake_tensors.is_fake(found)


def test_closures_and_hooks_read_the_mode_that_was_noted():
    module = Bound()
    model = poptorch.inferenceModel(module.train(), quiet_options())
    module.eval()
    module.drop.p = 1.0
    assert torch.equal(model(torch.ones(2))[0], torch.zeros(2))


def with_hook(hook):
    net = Function(lambda m, x: m.layer(x) * 0 + m.seen, buffers={"seen": torch.zeros(2)})
    net.layer = nn.Linear(2, 2)
    net.layer.register_forward_hook(lambda *arguments: hook(net))
    return net, poptorch.inferenceModel(net, quiet_options())


def test_a_buffer_that_a_hook_changes():
    def change(net):
        net.seen += 1

    net, model = with_hook(change)
    assert [model(torch.ones(2)).tolist() for _ in range(2)] == [[1, 1], [2, 2]]
    model.copyWeightsToHost()
    assert net.seen.tolist() == [2, 2]


def test_a_buffer_that_a_hook_reassigns():
    def reassign(net):
        net.seen = net.seen + 1

    net, model = with_hook(reassign)
    with pytest.raises(poptorch.Error, match=(
            "Buffer seen is reassigned within the model when calling the forward method. .*"
            r"self.seen.copy_\(src\)")):
        model(torch.ones(2))
    assert type(net.seen) is torch.Tensor and net.seen.tolist() == [0, 0]


def test_another_thread_has_the_users_attributes_in_a_capture():
    net = Paused().eval()
    model = poptorch.inferenceModel(net, quiet_options())
    compiling = threading.Thread(target=model.compile, args=(torch.rand(4, 3),))
    compiling.start()
    assert net.reached.wait(60)
    try:
        net.label, net.drop.p = "set here", 0.25
        assert vars(net)["label"] == "set here" and net.drop.p == 0.25
    finally:
        net.go_on.set()
        compiling.join()
    assert net.label == "set here" and net.drop.p == 0.25


class Frozen(nn.Parameter):
    pass


class OfGroup(nn.Parameter):
    pass


def test_classes_of_parameters_are_told(capsys):
    net = Function(lambda m, x: x * m.a * m.b * m.c * m.d, {"a": torch.ones(2)})
    net.b, net.c, net.d = Frozen(torch.ones(2)), Frozen(torch.ones(2)), OfGroup(torch.ones(2))
    net.b.label, net.buffer = "b", nn.Buffer(torch.ones(2))
    for _ in range(2):
        capture(net, (torch.ones(2),), training=False)
        told = " ".join(capsys.readouterr().err.split())
        for name in ("Frozen", "OfGroup"):
            assert told.count(
                "[capture] forward gets torch.nn.Parameter in place of parameters of the class "
                f"{name}: isinstance() is False for that class, and its methods are missing. Ask "
                "for an attribute, which they have too.") == 1
        assert told.count("isinstance") == 2


def test_a_function_of_the_host_gets_the_users_module():
    class OnHost(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.seen = nn.Linear(2, 2), []
            self.host = poptorch.CPU(lambda x: self.host_part(x), "part")

        def host_part(self, x):
            self.seen.append(self.fc.weight)
            return self.fc(x)

        def forward(self, x):
            return self.host(x) + self.fc(x)

    net, x = OnHost(), torch.ones(1, 2)
    model = poptorch.inferenceModel(net, quiet_options())
    torch.testing.assert_close(model(x), 2 * net.fc(x).detach())
    assert all(weight is net.fc.weight for weight in net.seen) and len(net.seen) == 2
    assert type(net.fc.weight) is nn.Parameter

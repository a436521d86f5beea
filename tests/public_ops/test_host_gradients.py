"""CPU: which gradients there are of what a function of the host is given."""

import copy

import pytest
import torch

import poptorch
from poptorch.ops import host_sites
from tests.helpers import quiet_options
from tests.public_ops.test_host import trained


def test_arguments_without_a_gradient():
    """A parameter that no result with a gradient depends on has none, and is not decayed."""
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
            self.host = poptorch.CPU(lambda a, b: (a * 2, a + b), "two")

        def forward(self, x):
            twice, total = self.host(self.a, self.b)
            return total, poptorch.identity_loss((twice * x).sum(), "none")

    net = Two()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=0.5)
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    model(torch.ones(2))
    model.copyWeightsToHost()
    assert net.b.tolist() == [1, 1]
    torch.testing.assert_close(net.a.detach(), torch.full((2,), 1 - 0.1 * (2 + 0.5)))


def test_parameters_of_the_host_that_no_gradient_reaches():
    class Inputs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(2, 2)
            self.frozen = False

        def forward(self, x):
            with torch.set_grad_enabled(not self.frozen):
                features = poptorch.CPU(HOST, "features")(x)
            return poptorch.identity_loss(self.fc(features).sum(), "none")

    HOST, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
    with pytest.raises(poptorch.Error, match=r"\[CPU\] 'features' has parameters of its own"):
        trained(Inputs())(x)
    net = Inputs()
    net.frozen = True
    expected = net(x)
    torch.testing.assert_close(trained(net)(x), expected)


def test_two_gradients_of_one_call():
    """One within forward, and that of the loss: both read what the call has kept."""
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.rand(3) + 0.1)

        def forward(self, x):
            y = poptorch.CPU(lambda a: a.sin() * a, "twice")(self.w * x)
            gradient, = torch.autograd.grad(y.sum(), self.w, retain_graph=True)
            return gradient, poptorch.identity_loss(y.pow(2).sum(), "none")

    net, x = Net(), torch.rand(3)
    model = trained(net)
    expected, loss = net(x)
    for _ in range(2):
        gradient, ours = model(x)
        torch.testing.assert_close((gradient, ours), (expected, loss.detach()))
        expected, loss = net(x)


def gradients_of(net: torch.nn.Module, eager: torch.nn.Module | None = None) -> tuple[dict, dict]:
    """Those in eager, of a copy where no other module is given, and ours."""
    eager = eager or copy.deepcopy(net)
    eager()[1].backward()
    with poptorch.testing.keep_gradients():
        model = trained(net)
        model()
        found = poptorch.testing.gradients(model)
    expected = {name: weight.grad for name, weight in eager.named_parameters()}
    return {name: grad for name, grad in expected.items() if grad is not None}, found


class Hooked(torch.nn.Module):
    """A function of the host with several results, each of which depends on some arguments."""

    def __init__(self, result: int):
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
        self.u = torch.nn.Parameter(torch.tensor([3.0]))
        self.u.register_hook(lambda gradient: gradient * 3)
        self.host = poptorch.CPU(lambda a, b, c: (a.sin(), b * 2, a * b * c), "several")
        self.result = result

    def forward(self):
        v = self.w * 2
        v.register_hook(hook=lambda gradient: gradient * 5)
        out = self.host(v, self.w, self.u)[self.result]
        return out, poptorch.identity_loss(out.sum(), "none")


@pytest.mark.parametrize("result", range(3))
def test_hooks_are_called_with_gradients_only(result):
    """Autograd calls those of a node whose gradient is not there, with None."""
    net = Hooked(result)
    eager = copy.deepcopy(net)
    eager.u.register_hook(lambda gradient: gradient * 3)  # a copy has none
    expected, found = gradients_of(net, eager)
    torch.testing.assert_close(found, expected)


class Squared(torch.autograd.Function):
    """The square; it has a gradient of zeros where its result has none."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        return 2 * x * gradient


class Behind(torch.nn.Module):
    """A function of the host with several results, each of which depends on some arguments."""

    def __init__(self, function, read: slice):
        super().__init__()
        self.w, self.u, self.v = (torch.nn.Parameter(torch.tensor([1.0, 2.0])) for _ in range(3))
        self.host = poptorch.CPU(lambda a, b: (a.sin(), b * 2, a * b, a.exp(), a.detach()), "five")
        self.function, self.read = function, read

    def forward(self):
        out = self.host(self.function(self.w), self.function(self.u))[self.read]
        return out, poptorch.identity_loss(sum(x.sum() for x in out) + self.v.sum(), "none")


@pytest.mark.parametrize("read", [slice(0, 1), slice(1, 2), slice(2, 3), slice(0, 2), slice(0, 4),
                                  slice(3, 5), slice(4, 5)])
def test_nodes_behind_arguments_without_a_gradient(read):
    """Nodes that have zeros where nothing reads their result are not reached, as in eager."""
    expected, found = gradients_of(Behind(Squared.apply, read))
    torch.testing.assert_close(found, expected)


def by_hook_of_tensor(x, hook):
    x.register_hook(hook)


def by_hook_of_node(x, hook):
    x.grad_fn.register_prehook(lambda gradients: (hook(gradients[0]), *gradients[1:]))


@pytest.mark.parametrize("register", [by_hook_of_tensor, by_hook_of_node])
def test_hooks_within_see_the_gradients_of_all_results(register):
    def function(a, b):
        shared = a * 2
        register(shared, torch.square)
        return shared.sin(), shared * b

    net = Behind(torch.neg, slice(0, 2))
    net.host = poptorch.CPU(function, "hooked")
    expected, found = gradients_of(net)
    torch.testing.assert_close(found, expected)


def test_a_call_is_kept_until_all_its_gradients_have_taken_it():
    """Not until the end of a run of several micro-batches."""
    kept = []

    def function(a, b):
        sites = [site for site in host_sites._sites.values() if isinstance(site, host_sites.Site)]
        kept.append(sum(len(site._kept) for site in sites if site.name == "kept"))
        return a.sin(), a * b

    class Net(Behind):
        def forward(self, x):
            return super().forward()[1] * x.sum()

    options = quiet_options().deviceIterations(3)
    net = Net(torch.neg, slice(0, 2))
    net.host = poptorch.CPU(function, "kept")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    poptorch.trainingModel(net, options, optimizer)(torch.ones(3, 2))
    assert len(kept) == 4 and set(kept) == {0}


def test_own_parameters_have_the_gradients_of_all_results():
    """Their hooks are called once."""
    seen = []
    own = torch.nn.Parameter(torch.tensor([2.0, 3.0]))
    own.register_post_accumulate_grad_hook(lambda x: seen.append(x.grad.tolist()))
    net = Behind(torch.neg, slice(0, 2))
    net.host = poptorch.CPU(lambda a, b: (a * own, b * own + a), "own")
    net()[1].backward()
    expected, own.grad = seen.copy(), None
    seen.clear()
    trained(net)()
    assert seen == expected and len(seen) == 1

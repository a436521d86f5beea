"""What hooks, a module's own ``__call__`` and functions around forward see of a call."""

import collections
import copy
import dataclasses
import functools

import pytest
import torch
from torch import nn

import poptorch
from poptorch import Error
from tests.helpers import quiet_options

X = torch.tensor([1.0, 2.0])
DEFAULT = torch.tensor([3.0, 5.0])


class Product(nn.Module):
    def forward(self, x, y=3.0, *more, z=5.0, **others):
        return x * y * z * len((x, *more)) + sum(others.values())


class OnlyByPosition(nn.Module):
    def forward(self, x, y=DEFAULT, /):
        return x * y


class Calls(Product):
    def __call__(self, *args, **kwargs):
        return super().__call__(*args, **kwargs) + 10 * len(args) + 100 * len(kwargs)


def doubled(module):
    module.register_forward_pre_hook(lambda m, args: tuple(a * 2 for a in args))
    return module


def counted(module):
    module.register_forward_hook(lambda m, args, kwargs, out: out + len(args) * 10
                                 + 100 * len(kwargs), with_kwargs=True)
    return module


def named(module):
    def hook(m, args, kwargs):
        return args, {name: value + number for number, (name, value) in enumerate(kwargs.items())}

    module.register_forward_pre_hook(hook, with_kwargs=True)
    return module


def wrapped(module):
    forward = module.forward

    @functools.wraps(forward)
    def around(*args, **kwargs):
        return forward(*args, **kwargs) + 10 * len(args) + 100 * len(kwargs)

    module.forward = around
    return module


CALLS = {
    "one": ((X,), {}),
    "by position": ((X, X + 1), {}),
    "by name": ((), {"y": X + 1, "x": X}),
    "all names": ((X,), {"z": X + 2, "y": X}),
    "more": ((X, X, X), {"other": X}),
}


@pytest.mark.parametrize("change", [doubled, counted, named, wrapped, lambda module: Calls()],
                         ids=["doubled", "counted", "named", "wrapped", "calls"])
@pytest.mark.parametrize("call", CALLS)
def test_what_is_seen_is_what_was_passed(change, call):
    args, kwargs = CALLS[call]
    net = change(Product())
    expected = net(*args, **kwargs)
    model = poptorch.inferenceModel(net, quiet_options())
    for _ in range(2):
        assert torch.equal(model(*args, **kwargs), expected)


def test_defaults_of_parameters_without_a_name():
    model = poptorch.inferenceModel(OnlyByPosition(), quiet_options())
    assert torch.equal(model(X), X * DEFAULT) and torch.equal(model(X, X), X * X)


class WithDefault(nn.Module):
    def forward(self, x, scale=2.0, y=DEFAULT):
        return x * scale * y


def test_a_default_that_is_a_tensor_beside_a_hook():
    for change in (doubled, wrapped):
        model = poptorch.inferenceModel(change(WithDefault()), quiet_options())
        with pytest.raises(Error, match=(
                r"\[arguments\] y is not passed, and its default holds a tensor, which the program "
                r"takes as an argument: .*, which sees the difference. Pass y.")):
            model(X)
    net = doubled(WithDefault())
    assert torch.equal(poptorch.inferenceModel(net, quiet_options())(X, y=X), net(X, y=X))
    assert torch.equal(poptorch.inferenceModel(WithDefault(), quiet_options())(X), X * 2 * DEFAULT)


def test_micro_batches_are_passed_as_the_call_passed_them():
    net = doubled(Product())
    model = poptorch.inferenceModel(net, quiet_options(deviceIterations=2))
    values = {"y": torch.ones(2, 2), "z": torch.ones(2, 2)}
    assert torch.equal(model(torch.ones(2, 2), **values), torch.full((2, 2), 2.0))


@pytest.mark.parametrize("change, words", [
    (doubled, "the model has a hook, which sees"), (lambda module: Calls(), "a __call__ of its"),
    (wrapped, "there is a function around forward, which sees")], ids=["hook", "call", "around"])
def test_a_later_call_that_passes_them_otherwise(change, words):
    net = change(Product())
    model = poptorch.inferenceModel(net, quiet_options())
    expected = net(X, y=X, z=X)
    assert torch.equal(model(X, y=X, z=X), expected)
    with pytest.raises(Error, match=(
            r"\[arguments\] expected 1 arguments by position and \['y', 'z'\] by name, as in the "
            r"first call, but got 2 by position and \['z'\] by name: .*" + words
            + ".* Pass them in the same way. Set Options.recompilation")):
        model(X, X, z=X)
    assert torch.equal(model(X, z=X, y=X), expected)
    model.destroy()
    assert torch.equal(model(X, X, z=X), net(X, X, z=X))


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
def test_where_nothing_sees_it_each_way_is_the_same():
    net = poptorch.BeginBlock(nn.utils.weight_norm(Linear(2, 2)), ipu_id=0)
    model = poptorch.inferenceModel(net, quiet_options())
    assert torch.equal(model(X), model(input=X))


class Linear(nn.Linear):
    pass


class Decorated(nn.Module):
    @torch.no_grad()
    def forward(self, x, y):
        return x * y


def test_decorators_of_torch_pass_everything_on():
    model = poptorch.inferenceModel(Decorated(), quiet_options())
    for args, kwargs in (((X, X), {}), ((X,), {"y": X}), ((), {"y": X, "x": X})):
        assert torch.equal(model(*args, **kwargs), X * X)


def test_a_loaded_model_checks_how_arguments_are_passed(tmp_path):
    net = Seen()
    model = poptorch.inferenceModel(net, quiet_options())
    expected = model(X, y=X)
    model.save(str(tmp_path / "file.poptorch"))
    loaded = poptorch.load(str(tmp_path / "file.poptorch"))
    assert torch.equal(loaded(X, y=X), expected)
    with pytest.raises(Error, match=r"expected 1 arguments by position and \['y'\] by name"):
        loaded(X, X)


class Seen(nn.Module):
    def __call__(self, *args, **kwargs):
        return super().__call__(*args, **kwargs) + 10 * len(args)

    def forward(self, x, y=3.0):
        return x * y


def compiled(forward):
    module = nn.Module()
    module.forward = forward
    return poptorch.inferenceModel(module, quiet_options())


@dataclasses.dataclass
class Pair:
    first: torch.Tensor
    count: int = 1


def replace_first(pair):
    pair.count += 1
    return pair.first + 1


@pytest.mark.parametrize("change, argument, words", [
    (lambda cache: cache.append(cache[0] * 2) or cache[0] + 1, [X],
     "changes the list cache: it had the entries [0] and has [0, 1] then"),
    (lambda cache: cache.pop("b") + 1, {"a": X, "b": X},
     "changes the dict cache: it had the entries ['a', 'b'] and has ['a'] then"),
    (lambda cache: cache.update(a=cache["a"] + 1, b=2) or cache["a"] + 1, {"a": X, "b": 1},
     "changes the dict cache: it holds other objects then at cache.a, cache.b"),
    (lambda cache: cache["q"][1].appendleft(cache["q"][0]) or cache["q"][0] + 1,
     {"q": (X, collections.deque())},
     "changes the deque cache.q.1: it had the entries [] and has ['0'] then"),
    (replace_first, Pair(X), "changes the Pair pair: it holds other objects then at pair.count"),
])
def test_changes_of_containers_are_warned_of(change, argument, words, capsys):
    before = copy.deepcopy(argument)
    assert torch.equal(compiled(change)(argument), change(copy.deepcopy(argument)))
    told = capsys.readouterr().err
    assert f"[arguments] forward {words}. The program has a copy of it, the caller's" in told
    assert str(argument) == str(before)


@pytest.mark.parametrize("forward, arguments, named", [
    (lambda cache: cache[0].add_(1) * 2, [[torch.ones(2)]], {}),
    (lambda x, **others: others.pop("y") + x, [X], {"y": X}),
    (lambda cache: cache.update(cache) or cache["a"] + 1, [{"a": X}], {}),
    (lambda cache: [*cache, cache[0] + 1], [[X]], {}),
])
def test_what_is_no_change_of_a_container(forward, arguments, named, capsys):
    compiled(forward)(*arguments, **named)
    assert "[arguments]" not in capsys.readouterr().err

"""What ``dir()`` shows of an object is its public interface: each name is explained, and on a page
of docs/reference."""

import inspect

import pytest
import torch

import poptorch
from tests.docs.reference_pages import GROUPS, PAGES
from tests.helpers import quiet_options

PAGES_TEXT = "\n".join(page() for page in PAGES.values())
OPTIONS = {name: getattr(poptorch.Options(), name.removeprefix("Options."), None)
           for name in GROUPS} | {"Options": poptorch.Options(),
                                  "TensorLocationSettings": poptorch.TensorLocationSettings()}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.hidden(x)


def of_poptorch(kind):
    """Public members that classes of this package define, by name."""
    return {name: member for part in kind.__mro__ if part.__module__.startswith("poptorch")
            for name, member in vars(part).items() if not name.startswith("_")}


def is_on_a_page(name):
    return any(mark in PAGES_TEXT for mark in (f"# `{name}(", f"# `{name}`\n", f"| `{name}` |",
                                               f"- `{name}`:"))


def test_a_name_that_is_nowhere_is_found():
    assert is_on_a_page("deviceIterations") and is_on_a_page("device_iterations")
    assert not is_on_a_page("ROWS") and not is_on_a_page("device")


@pytest.mark.parametrize("name", OPTIONS)
def test_options_show_what_users_call_and_read(name):
    group = OPTIONS[name]
    shown = [shown for shown in dir(group) if not shown.startswith("__")]
    values = {row.name: row.doc for row in group._ROWS}
    assert {*values, *group._setters()} <= set(shown)
    for one in shown:
        doc = values.get(one) or inspect.getdoc(getattr(type(group), one))
        assert doc and not one.startswith("_") and is_on_a_page(one), one
        getattr(group, one)


def test_categories_are_shown_and_the_back_door_is_reachable():
    options = poptorch.Options()
    assert {name.removeprefix("Options.") for name in GROUPS if "._" not in name
            and name.startswith("Options.")} <= set(dir(options))
    assert "_Popart" not in dir(options) and options._Popart is options._popart


def test_an_executor_shows_its_own_names_and_those_of_the_module():
    model = poptorch.inferenceModel(Net(), quiet_options())
    model(torch.ones(1, 2))
    shown = dir(model)
    assert {"hidden", "forward", "parameters", "compile", "rng_state", "__call__"} <= set(shown)
    assert [name for name in shown if name.startswith("_") and not name.endswith("__")] == []
    assert all(hasattr(model, name) for name in shown if not name.startswith("__"))


@pytest.mark.parametrize("name", sorted(
    name for name, kind in {**vars(poptorch), **vars(poptorch.optim)}.items()
    if inspect.isclass(kind) and not issubclass(kind, (BaseException, poptorch.Options,
                                                       poptorch.TensorLocationSettings))
    and not hasattr(kind, "__members__") and not name.startswith("_")))
def test_members_of_public_classes(name):
    kind = getattr(poptorch, name, None) or getattr(poptorch.optim, name)
    for member, thing in of_poptorch(kind).items():
        if getattr(thing, "__module__", "poptorch").startswith("poptorch"):
            assert inspect.getdoc(thing) and is_on_a_page(member), member

"""Whatever a program may call says the types of its arguments and of its result, for type checkers
and editors: a function without them is one that ``mypy --strict`` refuses to call."""

import collections.abc
import inspect
import typing

import pytest

import poptorch
from tests.docs.reference_pages import GROUPS

MODULES = {"poptorch": poptorch, "poptorch.optim": poptorch.optim,
           "poptorch.options": poptorch.options, "poptorch.profiling": poptorch.profiling,
           "poptorch.testing": poptorch.testing, "poptorch.poptorch_core": poptorch.poptorch_core}
SPECIAL = {"__init__", "__call__", "__iter__", "__next__", "__len__", "__enter__", "__exit__",
           "__getattr__", "__setattr__", "__getitem__", "__eq__"}
WITH_PARAMETERS = {dict, list, tuple, set, frozenset, collections.abc.Callable,
                   collections.abc.Iterable, collections.abc.Iterator}


def is_ours(thing):
    return (getattr(thing, "__module__", None) or "").startswith("poptorch")


def is_written(thing):
    """Not made by ``dataclass``."""
    code = getattr(inspect.unwrap(thing), "__code__", None) if callable(thing) else None
    return code is not None and code.co_filename.endswith(".py")


def public_callables():
    """Functions, and methods of classes with what is special about them, by name."""
    classes = {f"poptorch.{name}": kind for name, kind in GROUPS.items()}
    for module_name, module in MODULES.items():
        for name, thing in vars(module).items():
            if name.startswith("_") or not is_ours(thing):
                continue
            if inspect.isclass(thing):
                classes[f"{module_name}.{name}"] = thing
            elif callable(thing):
                yield f"{module_name}.{name}", inspect.unwrap(thing)
    for class_name, kind in classes.items():
        for part in filter(is_ours, kind.__mro__):
            for name, member in vars(part).items():
                is_shown = name in SPECIAL or not name.startswith("_")
                member = getattr(member, "fget", None) or getattr(member, "__func__", member)
                is_shown = is_shown and is_written(member)
                if is_shown and inspect.isfunction(inspect.unwrap(member)) and is_ours(member):
                    yield f"{class_name}.{name}", inspect.unwrap(member)


CALLABLES = {name: thing for name, thing in public_callables() if inspect.isfunction(thing)}


def missing(function):
    """What of a function has no type, or one that says too little."""
    try:
        hints = typing.get_type_hints(function)
    except NameError as error:
        yield f"what {error.name} is"
        return
    names = list(inspect.signature(function).parameters)
    is_method = function.__qualname__.count(".") and names[:1] in (["self"], ["cls"])
    names = names[1 if is_method else 0:]
    if function.__name__ != "__init__" or not names:  # else its arguments show that it has types
        names = [*names, "return"]
    for name in names:
        if name not in hints:
            yield name
        elif any(part in WITH_PARAMETERS for part in parts(hints[name])):
            yield f"what is in {name}"


def parts(hint):
    """A hint and its parts."""
    yield hint
    for inner in typing.get_args(hint):
        yield from parts(inner) if not isinstance(inner, list) else inner


def test_the_search_finds_what_it_should():
    def bad(a, b: int, c: dict, d: "Nowhere" = None):  # noqa: F821
        return a

    def good(a: "int | None", *rest: tuple[int, ...]) -> typing.Any:
        return a

    assert list(missing(bad)) == ["what Nowhere is"]
    del bad.__annotations__["d"]
    assert list(missing(bad)) == ["a", "what is in c", "d", "return"]
    assert list(missing(good)) == []
    assert {"poptorch.trainingModel", "poptorch.Options.deviceIterations",
            "poptorch.Options.Training.gradientAccumulation", "poptorch.optim.LAMB.__init__",
            "poptorch.PoplarExecutor.__call__", "poptorch.Options.Distributed.processId",
            "poptorch.options.Options.clone", "poptorch.profiling.record"} <= set(CALLABLES)
    assert len(CALLABLES) > 250


@pytest.mark.parametrize("name", CALLABLES)
def test_a_callable_says_its_types(name):
    assert list(missing(CALLABLES[name])) == []

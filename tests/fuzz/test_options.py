"""Options under any values: taken and kept through every copy, or refused with a reason."""

import copy
import enum
import json
import pickle
import string

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import poptorch
from tests.api.options.option_cases import (  # noqa: F401  (environment is a fixture)
    BY_NAME,
    CASES,
    environment,
    resolve,
)
from tests.fuzz.judge import attempt, budget

pytestmark = pytest.mark.filterwarnings("ignore:.*has no effect and will be removed",
                                        "ignore::SyntaxWarning")


MEMBERS = [member for name in dir(poptorch.enums) if name[0].isupper()
           for kind in [getattr(poptorch.enums, name)]
           if isinstance(kind, type) and issubclass(kind, enum.Enum) for member in kind]
NAMES = sorted(set(BY_NAME))

numbers = st.one_of(st.integers(-3, 70), st.sampled_from([2**31, -2**31, 2**63, 2**64, 10**400]),
                    st.floats(), st.booleans())
words = st.one_of(st.sampled_from(["", "IPU0", "IPU²", "0", "w", "fc.weight", "a/b", "\x00",
                                   "All", "torch.float16", "OPTION_CASE_SIZE"]),
                  st.text(max_size=5))
leaves = st.one_of(st.none(), numbers, words, st.binary(max_size=3), st.sampled_from(MEMBERS),
                   st.sampled_from([torch.half, torch.float32, torch.int8, int, object(),
                                    torch.zeros(2), poptorch.TensorLocationSettings()]))
values = st.recursive(leaves, lambda inner: st.one_of(
    st.lists(inner, max_size=3), st.lists(inner, max_size=3).map(tuple),
    st.dictionaries(st.one_of(words, st.integers(-1, 3)), inner, max_size=3)), max_leaves=6)


@st.composite
def calls(draw):
    """A setter's name and arguments: those of its row, or random ones in their place."""
    case = BY_NAME[draw(st.sampled_from(NAMES))]
    rows = [row for row in (case.arguments, case.wrong_type, case.out_of_range) if row is not None]
    arguments = list(draw(st.sampled_from(rows)))
    for position in range(len(arguments)):
        if draw(st.integers(0, 2)) == 0:
            arguments[position] = draw(values)
    if draw(st.integers(0, 5)) == 0:
        arguments = draw(st.lists(values, max_size=4))
    return case.name, arguments


def state(options):
    return {name: copy.deepcopy(group._values) for name, group in
            {"": options, **options._groups}.items()}


def check_copies(options):
    """Every copy is equal and prints equally; the dict survives JSON where it is plain."""
    assert " at 0x" not in repr(options)
    values = options.toDict()
    for other in (options.clone(), copy.deepcopy(options), poptorch.Options.fromDict(values)):
        assert other == options and repr(other) == repr(options)
    if options.execution_strategy is None:
        assert pickle.loads(pickle.dumps(options)) == options
        assert poptorch.Options.fromDict(json.loads(json.dumps(values))) == options


@budget(150)
@given(st.lists(calls(), min_size=1, max_size=6))
def test_setters_in_any_order(steps):
    options = poptorch.Options()
    for name, arguments in steps:
        before = state(options)
        group, setter = resolve(options, name)
        result, error = attempt(setter, *arguments)
        if error is None:
            assert result is group
        else:
            assert state(options) == before, f"{name} was refused, and changed the options"
    check_copies(options)
    options._freeze()
    before = state(options)
    assert attempt(setter, *arguments)[1] is not None
    assert state(options) == before


OPTION_NAMES = sorted(poptorch.Options().toDict())


@budget(150)
@given(st.dictionaries(st.one_of(st.sampled_from(OPTION_NAMES), words), values, max_size=3))
def test_dicts_of_anything(entries):
    options, error = attempt(poptorch.Options.fromDict, entries)
    if error is None:
        check_copies(options)


tokens = st.sampled_from([
    "deviceIterations", "outputMode", "Training", "Precision", "TensorLocations", "poptorch",
    "torch", "OutputMode", "All", "half", "setPartialsType", "TensorLocationSettings", "onChip",
    "__class__", "__import__", "_values", "clone", "(", ")", ".", ",", "=", "[", "]", "{", "}",
    ":", "*", "**", "-", "#", "'", '"', "\\", "lambda", "None", "True", "4", "1e999", "0x", "\x00",
    "é", " "])
random_lines = st.one_of(st.lists(tokens, max_size=12).map("".join),
                         st.text(alphabet=string.printable, max_size=20))


@st.composite
def written_calls(draw):
    """A line as a program writes it, often with one argument too strange for it."""
    name, arguments = draw(calls())
    shown = [f"poptorch.{type(a).__name__}.{a.name}" if isinstance(a, enum.Enum) else repr(a)
             for a in arguments]
    return f"{draw(st.sampled_from(['', '  ', 'options.']))}{name}({', '.join(shown)})"


@budget(150)
@given(lines=st.lists(st.one_of(random_lines, written_calls()), min_size=1, max_size=4),
       end=st.binary(max_size=2))
def test_config_files_of_anything(lines, end, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "random.cfg"
    path.write_bytes("\n".join(lines).encode() + end)
    options = poptorch.Options()
    _, error = attempt(options.loadFromFile, path)
    if error is not None:
        assert isinstance(error, poptorch.options.ConfigFileError)
        assert path.name in str(error) and error.line >= 1
    check_copies(options)


@budget(60)
@given(st.one_of(st.text(max_size=10), st.dictionaries(
    st.one_of(st.sampled_from([case.name for case in CASES]), words),
    st.recursive(st.one_of(st.none(), numbers, words),
                 lambda inner: st.lists(inner, max_size=3), max_leaves=4),
    max_size=2).map(json.dumps)))
def test_default_options_of_anything(text):
    with pytest.MonkeyPatch.context() as patch:
        if "\x00" in text or any(0xD800 <= ord(c) < 0xE000 for c in text):
            return  # no environment can hold these
        patch.setenv("POPTORCH_DEFAULT_OPTIONS", text)
        _, error = attempt(poptorch.Options)
        assert error is None or "POPTORCH_DEFAULT_OPTIONS" in str(error)

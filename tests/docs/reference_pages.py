"""Makes the pages of docs/reference from docstrings and rows; test_reference compares them."""

import enum
import inspect
import re
import textwrap

import torch

import poptorch
from poptorch import _C
from poptorch._annotations.strategy_rows import KINDS
from poptorch._base.unimplemented import LATER
from poptorch._optimizer.rows import ROWS
from poptorch.ops import named
from tests.docs.command_pages import command_line

SECTIONS = ("Args", "Attributes", "Returns", "Raises", "Example")
_HEAD = re.compile(rf"^({'|'.join(SECTIONS)}):$", re.MULTILINE)
_ITEM = re.compile(r"^([\w.*,\s]+?): ")

GROUPS = {"Options": poptorch.Options,
          "Options.Training": poptorch.options._TrainingOptions,
          "Options.Precision": poptorch.options._PrecisionOptions,
          "Options.TensorLocations": poptorch.options._TensorLocationOptions,
          "Options.Distributed": poptorch.options._DistributedOptions,
          "Options.Jit": poptorch.options._JitOptions,
          "Options._Popart": poptorch.options._PopartOptions,
          "TensorLocationSettings": poptorch.TensorLocationSettings}


def from_docstring(thing) -> str:
    """A docstring as Markdown: text, lists of arguments and errors, the example."""
    text = inspect.getdoc(thing) or ""
    parts = _HEAD.split(text)
    blocks = [_plain(parts[0])]
    for head, body in zip(parts[1::2], parts[2::2]):
        body = textwrap.dedent(body.strip("\n"))
        if head == "Example":
            blocks.append(f"```python\n{body}\n```")
        elif head == "Returns":
            blocks.append(f"*Returns:* {_plain(' '.join(body.split()))}")
        else:
            blocks.append(f"*{head}:*\n\n" + _list(body))
    return "\n\n".join(block for block in blocks if block) + "\n"


def _plain(text: str) -> str:
    text = re.sub(r":\w+:`([^`]+)`", r"``\1``", text.strip())
    return text.replace("``", "`")


def _list(body: str) -> str:
    """``names: text`` with indented further lines, as a list; names may go on in the next line."""
    items = []
    for line in filter(str.strip, body.splitlines()):
        if items and (line.startswith(" ") or not _ITEM.match(items[-1])):
            items[-1] += "\n  " + line.strip()
        else:
            items.append(line)
    marked = (_ITEM.sub(lambda item: f"- `{' '.join(item[1].split())}`: ", item) for item in items)
    return _plain("\n".join(marked))


def function(name: str, thing, level: int = 3) -> str:
    """A function or method: signature and docstring."""
    head = f"{'#' * level} `{name}{_signature(thing)}`"
    return f"{head}\n\n{from_docstring(thing)}"


def _signature(thing) -> str:
    if isinstance(thing, property):
        return ""
    signature = inspect.signature(thing)
    names = [p.replace(annotation=inspect.Parameter.empty) for n, p in
             signature.parameters.items() if n not in ("self", "cls")]
    return str(inspect.Signature(names))


def class_(name: str, kind: type, level: int = 2, shown_above: type = object) -> str:
    """A class: its docstring, then its public methods and properties, and what a call does.

    Those of the base class ``shown_above`` are left out.
    """
    parts = [f"{'#' * level} `{name}`\n\n{from_docstring(kind)}"]
    for member in _members(kind):
        if hasattr(shown_above, member):
            continue
        thing = inspect.getattr_static(kind, member)
        thing = getattr(thing, "__func__", thing)
        parts.append(function(member, thing, level + 1))
    return "\n".join(parts)


def _members(kind: type) -> list[str]:
    """Public methods and properties, in the order in which the classes define them."""
    seen: dict[str, None] = {}
    for part in kind.__mro__:
        if part.__module__.startswith("poptorch"):
            for name, thing in vars(part).items():
                is_shown = callable(thing) or isinstance(thing, property | classmethod)
                is_public = not name.startswith("_") or name == "__call__"
                # torch puts a `step` of its own on an optimizer's class once one has been made.
                is_ours = not (getattr(thing, "__module__", None) or "").startswith("torch.")
                if is_public and is_shown and is_ours and not inspect.isclass(thing):
                    seen.setdefault(name)
    return list(seen)


# -- pages ---------------------------------------------------------------------------------------


def _default(row) -> str:
    if row.default_text:
        return row.default_text
    value = row.default
    return f"`{type(value).__name__}.{value.name}`" if isinstance(value, enum.Enum) \
        else f"`{value!r}`"


def _table(kind: type) -> str:
    lines = ["| read as | set by | default | takes | meaning |", "|---|---|---|---|---|"]
    for row in kind._ROWS:
        default = "undefined" if isinstance(row.default, dict) and row.default else _default(row)
        takes = row.check.text if row.check is not None else ""
        lines.append(f"| `{row.name}` | {f'`{row.setter}`' * bool(row.setter)} | {default} | "
                     f"{takes} | {_plain(row.doc)}{_state(row)} |")
    return "\n".join(lines) + "\n"


def _state(row) -> str:
    return " *(no effect yet)*" if row.later else ""


def options() -> str:
    """docs/reference/options.md."""
    parts = ["# Options\n\nThese options control how a model is compiled and run: first the "
             "tables, then each method.\n\n[options_without_effect.md](options_without_effect.md) "
             "explains the options marked *(no effect yet)*.\n"]
    for name, kind in GROUPS.items():
        parts.append(f"## `{name}`: values\n\n{_table(kind)}")
    parts += [class_(name, kind) for name, kind in GROUPS.items()]
    parts.append(class_("options.ConfigFileError", poptorch.options.ConfigFileError))
    return "\n".join(parts)


def options_without_effect() -> str:
    """docs/reference/options_without_effect.md."""
    lines = ["# Options without effect\n",
             "poptorch checks, stores, copies and prints these options, but they have no effect "
             "yet. Using one\nlogs one warning.\n",
             "| option | requires |", "|---|---|"]
    for name, kind in GROUPS.items():
        lines += [f"| `{name}.{row.setter}` | {LATER[row.later]} |"
                  for row in kind._ROWS if row.later]
    lines += ["", "Deprecated options have no effect and cause a DeprecationWarning:", "",
              "| option | instead |", "|---|---|"]
    for name, kind in GROUPS.items():
        lines += [f"| `{name}.{row.setter}` | {row.deprecated} |"
                  for row in kind._ROWS if row.deprecated]
    return "\n".join(lines) + "\n"


def enums() -> str:
    """docs/reference/enums.md."""
    parts = ["# Enumerations\n"]
    kinds = {name: kind for name, kind in vars(poptorch.enums).items()
             if inspect.isclass(kind) and issubclass(kind, enum.Enum) and kind is not enum.Enum}
    source = inspect.getsource(poptorch.enums)
    for name, kind in sorted(kinds.items()):
        lines = ["| member | meaning |", "|---|---|"]
        body = source[source.index(f"class {name}("):]
        for member in kind:
            found = re.search(rf"((?:^    #: .*\n)*)^    {member.name} = ", body, re.MULTILINE)
            words = " ".join(re.findall(r"#: (.*)", found[1]))
            lines.append(f"| `{name}.{member.name}` | {words.replace('``', '`')} |")
        table = "\n".join(lines)
        parts.append(f"## `poptorch.{name}`\n\n{from_docstring(kind)}\n{table}\n")
    parts += [f"## `poptorch.{name}`\n\nThe old name of `poptorch.{thing.__name__}`.\n"
              for name, thing in vars(poptorch).items()
              if thing in kinds.values() and thing.__name__ != name]
    return "\n".join(parts)


def algorithms() -> str:
    """docs/reference/algorithms.md."""
    lines = ["# Algorithms\n",
             "If an operation can be computed in several ways, poptorch chooses the algorithm with "
             "the least\nestimated or "
             "[measured](../guide/debugging/determinism.md#measured-algorithms) time. "
             "`PoplarExecutor.op_report(algorithms=True)`\nshows the choice. "
             "`POPTORCH_ALGORITHM` forces others where they apply:\n"
             "`POPTORCH_ALGORITHM=conv:winograd,conv:im2col`.\n",
             "| name | description |", "|---|---|"]
    lines += [f"| `{family}:{name}` | {doc} |" for family, name, doc in _C.algorithms()]
    return "\n".join(lines) + "\n"


def errors_and_logs() -> str:
    """docs/reference/errors_and_logs.md."""
    parts = ["# Errors, logs and traces\n"]
    for kind in (poptorch.Error, poptorch.RecoverableError, poptorch.UnrecoverableError):
        parts.append(class_(f"poptorch.{kind.__name__}", kind))
    parts.append(function("poptorch.setLogLevel", poptorch.setLogLevel, 2))
    parts.append(f"## `poptorch.logger`\n\nThe `logging.Logger` of the package, named "
                 f"`{poptorch.logger.name}`.\n\n"
                 "```python\n>>> import logging, poptorch\n"
                 ">>> poptorch.logger.addHandler(logging.NullHandler())\n```\n")
    parts.append("## `poptorch.profiling`\n\n" + from_docstring(poptorch.profiling))
    parts.append(class_("poptorch.profiling.Channel", poptorch.profiling.Channel))
    parts.append(function("poptorch.profiling.record",
                          inspect.unwrap(poptorch.profiling.record), 2))
    return "\n".join(parts)


def data() -> str:
    """docs/reference/data.md."""
    parts = ["# Data loading\n"]
    for name in ("DataLoader", "AsynchronousDataAccessor", "ICustomArgParser"):
        parts.append(class_(f"poptorch.{name}", getattr(poptorch, name)))
    parts.append(function("poptorch.registerCustomArgParser", poptorch.registerCustomArgParser, 2))
    return "\n".join(parts)


def _functions(title: str, names: str, level: int = 2) -> str:
    return f"{'#' * (level - 1)} {title}\n\n" + "\n".join(
        function(f"poptorch.{name}", getattr(poptorch, name), level) for name in names.split())


def models() -> str:
    """docs/reference/models.md."""
    return "\n".join([
        _functions("Models", "trainingModel inferenceModel compile load save_bundle "
                   "load_bundle save_weights load_weights convert_precision identity_loss"),
        class_("poptorch.PoplarExecutor", poptorch.PoplarExecutor),
        class_("poptorch.DeviceReport", poptorch.DeviceReport),
        function("torch.nn.Parameter.replicaGrouping", torch.nn.Parameter.replicaGrouping, 2),
        _functions("Without running", "analyze estimate fit", 3),
        class_("poptorch.Analysis", poptorch.Analysis),
        class_("poptorch.Fit", poptorch.Fit),
        _functions("Around a compilation",
                   "registerPreCompileHook registerPostCompileHook isRunningOnIpu "
                   "isCompilingWithDispatcher ipuHardwareIsAvailable ipuHardwareVersion "
                   "devices", 3)])


def blocks() -> str:
    """docs/reference/blocks.md."""
    return "\n".join([
        "# Blocks and strategies\n",
        class_("poptorch.Block", poptorch.Block),
        _functions("Functions", "BeginBlock BlockFunction removeBlocks module_repr", 3),
        *(class_(f"poptorch.{name}", getattr(poptorch, name)) for name in (
            "NameScope", "Attribute", "Stage", "Phase",
            *(kind.__name__ for kind in KINDS.values())))])


def directives() -> str:
    """docs/reference/directives.md."""
    return "\n".join([
        _functions("Directives: how something is computed",
                   "recomputationCheckpoint serializedMatMul set_available_memory nop "
                   "set_overlap_for_input set_overlap_for_output"),
        class_("poptorch.SerializedLinear", poptorch.SerializedLinear),
        class_("poptorch.MultiConv", poptorch.MultiConv)])


def extra_functions() -> str:
    """docs/reference/extra_functions.md."""
    names = ("for_loop cond dynamic_slice dynamic_update ipu_print_tensor "
             "ctc_beam_search_decoder nearest fps")
    return "\n".join([_functions("Functions that PyTorch lacks", names, 2),
                      class_("poptorch.CPU", poptorch.CPU)])


def optimizers() -> str:
    """docs/reference/optimizers.md."""
    base = poptorch.optim.Optimizer
    kinds = [kind for kind in vars(poptorch.optim).values()
             if inspect.isclass(kind) and issubclass(kind, base) and kind is not base]
    return "\n".join([
        "# Optimizers\n\nYou can also use the optimizers of `torch.optim`, including those "
        "without a class here, and "
        "[optimizers of your own](../guide/training/own_optimizers.md).\n",
        _kinds_of_optimizers(),
        class_("poptorch.optim.Optimizer", base),
        *(class_(f"poptorch.optim.{kind.__name__}", kind, shown_above=base) for kind in kinds),
        class_("poptorch.optim.MapGradients", poptorch.optim.MapGradients),
        class_("poptorch.optim.VariableAttributes", poptorch.optim.VariableAttributes)])


def _kinds_of_optimizers() -> str:
    lines = ["| kind | may change between calls | fixed at compile time | state of a "
             "parameter: PyTorch's key, `ipu_state` | shown in `ipu_param` |",
             "|---|---|---|---|---|"]
    for spec in ROWS.values():
        hyper = ", ".join(f"`{hyper.key}`" for hyper in spec.hyper if hyper.key)
        states = "; ".join(f"`{state.key}`, `{state.outside}`"
                           + (f" (with `{state.when}`)" if state.when else "")
                           for state in spec.states)
        counted = "`step`, `Step`" if spec.counts else "`Step` alone"
        compiled = ", ".join(f"`{key}`" for key in (*spec.flags, *spec.constants))
        lines.append(f"| `{spec.name}`: {spec.doc} | {hyper} | {compiled} | {states}; {counted} | "
                     f"{', '.join(f'`{setting.name}`' for setting in spec.settings)} |")
    return "\n".join(lines) + "\n"


def testing() -> str:
    """docs/reference/testing.md."""
    names = ("compare", "wide", "is_wide", "keep_gradients", "keeps_gradients", "gradients",
             "stage_costs", "assert_budget")
    functions = [
        function(f"poptorch.testing.{name}", inspect.unwrap(getattr(poptorch.testing, name)), 2)
        for name in names]
    classes = [class_(f"poptorch.testing.{kind.__name__}", kind)
               for kind in (poptorch.testing.Comparison, poptorch.testing.Difference)]
    return "# Tests and debugging\n\n" + "\n".join([*functions, *classes])


def custom_ops() -> str:
    """docs/reference/custom_ops.md."""
    lines = ["## Operations without a library\n",
             "| domain | name | inputs | versions | attributes and defaults |",
             "|---|---|---|---|---|"]
    rows = [row for rows in named.ROWS.values() for row in rows]
    for row in sorted(rows, key=lambda row: (row.domain, row.name, row.first)):
        lines.append(f"| `{row.domain}` | `{row.name}` | {row.input_words()} | "
                     f"{row.first} to {row.last} | {row.attribute_words()} |")
    return _functions("Custom ops", "custom_op include_path") + "\n" + "\n".join(lines) + "\n"


PAGES = {"options.md": options, "options_without_effect.md": options_without_effect,
         "enums.md": enums, "errors_and_logs.md": errors_and_logs, "data.md": data,
         "algorithms.md": algorithms, "command_line.md": command_line,
         "models.md": models, "blocks.md": blocks, "directives.md": directives,
         "extra_functions.md": extra_functions, "custom_ops.md": custom_ops,
         "optimizers.md": optimizers, "testing.md": testing}

"""Makes docs/reference/command_line.md from the parsers of the command line."""

import argparse

from poptorch._command.parser import COMMANDS, STATUSES, commands_of, parser

_HEAD = f"""# Command line

`poptorch COMMAND` and `python -m poptorch COMMAND` are the same program.
[The guide](../guide/deploy/command_line.md) explains how to use it. Every command has `--help`, and
`--debug` to show the traceback of an error.
{STATUSES}

| command | what it does |
|---|---|
"""


def command_line() -> str:
    """docs/reference/command_line.md."""
    parsers = commands_of(parser())
    lines = [f"| [`{name}`](#poptorch-{name}) | {module.SUMMARY} |"
             for name, module in COMMANDS.items()]
    return _HEAD + "\n".join([*lines, "", *(_command(f"poptorch {name}", COMMANDS[name], found)
                                            for name, found in parsers.items())])


def _command(title: str, module, command: argparse.ArgumentParser) -> str:
    examples = "\n".join(module.EXAMPLES)
    parts = [f"## `{title}`", command.description, f"```\n{examples}\n```"]
    if hasattr(module, "STATUS"):
        parts.append(f"Exit status: {module.STATUS}")
    parts.append(_table(command))
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, part in action.choices.items():
                parts += [f"### `{title} {name}`", part.description, _table(part)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _table(command: argparse.ArgumentParser) -> str:
    rows = [f"| `{_words(action)}` | {action.help} |" for action in command._actions
            if action.dest not in ("help", "debug") and action.help]
    return "\n".join(["| argument | meaning |", "|---|---|", *rows]) if rows else ""


def _words(action: argparse.Action) -> str:
    """An argument as the command line has it."""
    value = "" if action.nargs == 0 else action.metavar or action.dest.upper()
    if action.choices is not None and action.metavar is None:
        value = " or ".join(action.choices)
    if not action.option_strings:
        value = action.metavar or action.dest
    value += {"+": " ...", "*": " ..."}.get(action.nargs, "")
    return " ".join(filter(None, [", ".join(action.option_strings), value]))

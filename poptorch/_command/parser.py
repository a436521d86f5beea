"""The command line: its parser, and what happens to errors."""

import argparse
import contextlib
import os
import re
import sys
import textwrap
import traceback
from types import ModuleType

from poptorch._base.checks import near_names
from poptorch._command import (
    analyze,
    cache,
    compare,
    compile,
    convert,
    devices,
    estimate,
    how,
    include,
    inspect,
    ops,
    opt,
    report,
    run,
    train,
    version,
)
from poptorch.errors import Error

COMMANDS: dict[str, ModuleType] = {
    module.__name__.rpartition(".")[2]: module for module in (
        compile, convert, run, train, inspect,  # files of compiled models
        report, estimate, analyze, compare,  # models
        devices, cache, ops, how, opt, include, version)}

STATUSES = "Exit status: 0 if the command worked, 1 after an error, 2 for a wrong command line."


class Parser(argparse.ArgumentParser):
    """A parser that suggests near names."""

    def __init__(self, **settings):
        super().__init__(formatter_class=_Help, allow_abbrev=False, **settings)

    def parse_args(self, words: list[str]) -> argparse.Namespace:
        """The arguments; ends the process with status 2 if the words are wrong."""
        name = next((word for word in words if not word.startswith("-")), None)
        if name is not None and name not in COMMANDS:
            self.error(f"there is no command {name!r}.{near_names(name, COMMANDS)}")
        found, unknown = self.parse_known_args(words)
        if unknown:
            command = commands_of(self)[name]
            options = re.findall(r"--[\w-]+", command.format_help())
            near = near_names(unknown[0].partition("=")[0], dict.fromkeys(options))
            command.error(f"unrecognized arguments: {' '.join(unknown)}.{near}")
        return found

    def _check_value(self, action: argparse.Action, value) -> None:
        """An error that suggests near names, unless a value is one of the choices."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += near_names(str(value), action.choices)
            raise


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help of at most 80 columns, whatever the terminal has."""

    def __init__(self, prog: str):
        super().__init__(prog, width=80)


def parser() -> Parser:
    """The command line."""
    top = Parser(prog="poptorch", description="Compiles, runs, estimates and inspects models.",
                 epilog=f"`poptorch COMMAND --help` has examples.\n{textwrap.fill(STATUSES, 80)}")
    top.add_argument("--version", action="version", version=version.text())
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND",
                                  title="commands", parser_class=Parser)
    for name, module in COMMANDS.items():
        command = commands.add_parser(
            name, help=module.SUMMARY, epilog=_epilog(module),
            description=f"{module.SUMMARY[0].upper()}{module.SUMMARY[1:]}.")
        module.add_arguments(command)
        command.add_argument("--debug", action="store_true",
                             help="show the traceback of an error")
        command.set_defaults(run=module.run)
    return top


def commands_of(top: Parser) -> dict[str, Parser]:
    """The parsers of the commands by name."""
    return next(action.choices for action in top._actions
                if isinstance(action, argparse._SubParsersAction))


def _epilog(module: ModuleType) -> str:
    lines = ["examples:", *(f"  {example}" for example in module.EXAMPLES)]
    status = getattr(module, "STATUS", "")
    if status:
        lines += ["", textwrap.fill(f"Exit status: {status}", 80)]
    return "\n".join(lines)


def main(words: list[str] | None = None) -> int:
    """Runs one command and returns the exit status. Errors go to stderr."""
    arguments = parser().parse_args(sys.argv[1:] if words is None else words)
    try:
        status = arguments.run(arguments) or 0
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return 130  # as a shell counts SIGINT
    except BrokenPipeError:  # the reader, such as head, has what it wants
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if arguments.debug:
            traceback.print_exc()
        else:
            print(_words(error, arguments.command), file=sys.stderr)
        return 1


def _words(error: Exception, command: str) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"[{command}] {error.filename}: {error.strerror}. Check the path."
    if isinstance(error, (Error, OSError)) or str(error).startswith("["):
        return str(error)
    return (f"[{command}] {type(error).__name__}: {error}. Run the command again with --debug to "
            f"see the traceback.")

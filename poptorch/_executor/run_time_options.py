"""Options that a compiled program does not depend on."""

from poptorch.errors import Error
from poptorch.options import Options

# Of the device, of logging, and of what the host does: all else is in the program already.
RUN_TIME = frozenset((
    "connection_type", "executable_cache_path", "ipu_id", "log_cycle_count", "log_dir",
    "max_repeat_logs", "model_name", "profile_dir", "show_compilation_progress_bar",
    "use_ipu_model"))


def check_read(options) -> None:
    """Checks options that were read from a file.

    Raises:
        ValueError: They are none, or one of them is missing or of a value that it cannot have.
    """
    if not isinstance(options, Options):
        raise ValueError(f"{options!r:.60} instead of options")
    if _values(options).keys() != _values(Options()).keys():
        raise ValueError(f"the options {', '.join(_values(options))}")
    try:
        Options.fromDict(options.toDict())
    except (TypeError, AttributeError) as error:
        raise ValueError(f"{error}") from error


def edited(options: Options, edit) -> Options:
    """A copy of ``options`` that ``edit``, a function or None, has changed.

    Raises:
        poptorch.Error: An option was changed that is compiled in.
    """
    new = options.clone()
    new._values["offline_ipu_version"] = None  # the program is compiled: now it may run
    before = _values(new)
    if edit is not None:
        edit(new)
    for name, value in _values(new).items():
        if name not in RUN_TIME and value != before[name]:
            raise Error(f"[load] edit_opts_fn changed {name} from {before[name]!r} to {value!r}, "
                        f"which is compiled into the program. It may change "
                        f"{', '.join(sorted(RUN_TIME))}. Wrap the module anew to compile with "
                        f"other options.")
    return new


def _values(options: Options) -> dict:
    """The values of all rows, by name."""
    groups = (options, *options._groups.values())
    return {row.name: group._values[row.name] for group in groups for row in group.ROWS}

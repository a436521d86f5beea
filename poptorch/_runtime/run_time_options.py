"""Options that a compiled program does not depend on."""

from poptorch.errors import Error
from poptorch.options import Options


def check_read(options) -> None:
    """Raises a ValueError unless an object from a file is valid options with all values."""
    if not isinstance(options, Options):
        raise ValueError(f"{options!r:.60} instead of options")
    if _values(options).keys() != _values(Options()).keys():
        raise ValueError(f"the options {', '.join(_values(options))}")
    try:
        Options.fromDict(options.toDict())
    except (TypeError, AttributeError) as error:
        raise ValueError(f"{error}") from error


def edited(options: Options, edit) -> Options:
    """A copy of ``options`` that ``edit`` has changed; an Error if that is compiled in."""
    new = options.clone()
    new._values["offline_ipu_version"] = None  # the program is compiled: now it may run
    before, run_time = _values(new), {row.name for _, row in new._rows() if row.is_run_time}
    if edit is not None:
        if not callable(edit):
            raise TypeError(f"[load] expected edit_opts_fn to be a function of options, got "
                            f"{edit!r:.80}. Pass a function that changes the options.")
        returned = edit(new)
        if isinstance(returned, Options) and returned is not new:
            raise Error("[load] edit_opts_fn returned other options than it was given. Change "
                        "those that it is given.")
    for name, value in _values(new).items():
        if name not in run_time and value != before[name]:
            raise Error(f"[load] edit_opts_fn changed {name} from {before[name]!r} to {value!r}, "
                        f"which is compiled into the program. It may change "
                        f"{', '.join(sorted(run_time))}. Wrap the module again to compile with "
                        f"other options.")
    return new


def check_kept(own: Options, compiled: Options) -> None:
    """Raises an Error if a program lacks a check that a wrapper's options ask for."""
    for name in ("floating_point_exceptions", "record_non_finite"):
        if getattr(own.Precision, name) and not getattr(compiled.Precision, name):
            raise Error(f"[loadExecutable] the executable was compiled with Precision.{name}="
                        f"False, this wrapper specifies True, for which a program keeps each "
                        f"operation. Wrap the module with the options of the model that was saved.")


def _values(options: Options) -> dict:
    """The values of all rows, by name."""
    return {row.name: group._values[row.name] for group, row in options._rows()}

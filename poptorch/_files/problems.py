"""The errors of files that cannot be used; each names the file, the part, and what to do."""

from poptorch.errors import Error

_SHOWN = 300  # characters of another error in a message


def why(error: Exception) -> str:
    """The reason of an error of the system, without its number and its path."""
    return getattr(error, "strerror", None) or str(error)


def foreign(path, why: str) -> Error:
    """The error for a file that is something else."""
    return Error(f"[load] {path} is not a file of poptorch: {why}. Pass a file that save() or "
                 f"compileAndExport() wrote.")


def other_module(what: str) -> Error:
    """The error for a file that was made from a module unlike the one that is to run it."""
    return Error(f"[loadExecutable] {what}. Wrap a module of the same class and settings.")


def damaged(path, why: str) -> Error:
    """The error for a file that is not as it was written."""
    return Error(f"[load] {path} is damaged: {why.removesuffix('.')}. Copy or export it again.")


def unreadable(path, member: str, error: Exception) -> Error:
    """The error for a member that is not what was written, by what reading it led to."""
    why = str(error).partition("\n")[0][:_SHOWN]
    if isinstance(error, KeyError):
        why = f"no entry {why}"
    elif type(error) not in (Error, ValueError):
        why = f"{type(error).__name__}: {why}"
    return damaged(path, f"its {member} is not what poptorch writes ({why})")

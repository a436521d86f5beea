"""Counters outside of modules: globals, variables of functions around, attributes of classes."""

from poptorch._base.value_snapshot import Snapshot, has_attributes
from poptorch._guards.outer_name import OuterName
from poptorch._guards.python_state import (
    is_counting,
    is_flag,
    is_number,
    warn_of_count,
    warn_of_flag,
)
from poptorch._guards.statements import Statement
from poptorch.errors import place_text


def warn(read: list[tuple[OuterName, Snapshot]], sets: list[tuple[OuterName, Snapshot]],
         statements: dict[tuple, tuple[set[Statement], set[Statement]]]) -> None:
    """Warns of values that ``forward`` has changed and computes with.

    Args:
        read, sets, statements: as :class:`poptorch._guards.globals_read.Found` has them, of before.
    """
    for name, snapshot in sets:
        if has_attributes(name.holder()):  # what is set of it was noted as it happened
            continue
        was, now = snapshot.value, name.own_value()
        reads, puts = statements[name.key]
        if is_number(was) and is_number(now) and was != now:
            counted = {put for put in puts if is_counting(put, reads, name.names[-1])}
            if counted and reads - counted:
                warn_of_count(name.text, was, now, _place(counted))
        elif is_flag(was) and type(now) is type(was) and now != was:
            found = {put for put in puts
                     if any(code is put[0] and tuple(place) < put[1:] for code, *place in reads)}
            if found:
                warn_of_flag(name.text, was, now, _place(found))
    for name, snapshot in read:
        if name.value() is snapshot.value:
            found = snapshot.change(name.text)
            reads, _ = statements.get(name.key, ((), ()))
            if found is not None and (found.is_gone or len(reads) != 1):
                warn_of_count(*found[:3])


def _place(found: set[Statement]) -> str:
    code, line, _ = min(found, key=lambda statement: statement[1:])
    return place_text((code.co_filename, line))

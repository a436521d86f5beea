"""Changes of a data set or a sampler that a loading process, which has a copy, does not see."""

from collections.abc import Iterator

from torch.utils.data import DataLoader

from poptorch._base.logging import logger
from poptorch._base.value_snapshot import MISSING, VALUES, same


class Changes:
    """The numbers and texts in attributes of a data set and its samplers, as they were."""

    def __init__(self, data):
        self._found = [(one, _plain(one)) for one in _objects(data)]

    def warn(self) -> None:
        """Warns, once, of the first attribute that has another value now."""
        for one, before in self._found:
            now = _plain(one)
            for name in sorted(before.keys() | now.keys()):
                was, value = before.get(name, MISSING), now.get(name, MISSING)
                if not same(was, value):
                    self._found = []
                    _warn(one, name, was, value)
                    return


def _warn(one, name: str, was, now) -> None:
    was, now = ("not there" if value is MISSING else repr(value) for value in (was, now))
    logger.warning(
        "[AsynchronousDataAccessor] %s of a %s was %s when the process that loads ahead began, it "
        "is %s: the process has a copy, which does not change. Use DataLoaderMode.Sync, make a "
        "new loader, or let %s count epochs in its __iter__.", name, type(one).__name__, was, now,
        type(one).__name__)


def _objects(data) -> Iterator:
    if not isinstance(data, DataLoader):
        yield data
        return
    yield from (data.dataset, data.sampler)
    if data.batch_sampler is not None:
        yield from (data.batch_sampler, getattr(data.batch_sampler, "sampler", None))


def _plain(one) -> dict:
    return {name: value for name, value in getattr(one, "__dict__", {}).items()
            if type(value) in VALUES}

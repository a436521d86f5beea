"""Loads data ahead in a process of its own."""

import os
from collections.abc import Iterable, Iterator
from typing import Any

from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Dataset

from poptorch._base.checks import Bool, Number, at_least, one_of
from poptorch.data import _worker
from poptorch.data._changes import Changes
from poptorch.data._launch import launch
from poptorch.data._link import WorkerLink
from poptorch.data._sources import CollatedSource, RandomState, RebatchedSource, Source
from poptorch.enums import SharingStrategy
from poptorch.errors import Error


class AsynchronousDataAccessor:
    """Loads items ahead, in a process of its own, while the program works with the last one.

    The items wait in a ring buffer of shared memory and are used where they are. Iterating gives
    what iterating over ``dataset`` gives, in the same order; each ``iter()`` starts a new
    epoch, also when the last one was left early. Only the newest iterator is valid.

    The process starts with the random state of the program, whose generators are then moved on, so
    that another accessor draws other numbers.

    The memory of an item is used again when the item after the next is requested, unless some
    tensor over it is still alive then.

    An exception of the data set is raised here, with its traceback. The process ends with
    :meth:`terminate`, with this object, or with the program.

    Args:
        dataset: a data set, whose samples are the items, a ``torch.utils.data.DataLoader``, or
            any iterable. It must be picklable, but with ``SharingStrategy.Fork``.
        buffer_size: items that may lie ready, at least 1; default 3. One more slot of memory
            holds the item before the present one.
        miss_sleep_time_in_ms: how long the process rests, when it finds the buffer full, before
            it looks again; default 0.1.
        load_indefinitely: True (the default): at the end of an epoch, load the next one.
            False: wait for the next ``iter()``.
        early_preload: True: fill the buffer at once. False (the default): load the first item,
            and the others when the first iterator is made.
        sharing_strategy: how the process gets the data set, see :class:`SharingStrategy`;
            default ``ForkServer``.
        rebatched_size: join this many samples to one item; the batch size of ``dataset`` must
            then be 1. None (the default): leave items as they are. What does not fill an item
            is left out, unless ``dataset`` is a ``poptorch.DataLoader`` with
            ``drop_last=False``.

    Raises:
        TypeError, ValueError: An argument is of the wrong kind or out of range.
        poptorch.Error: The process fails to start, or to load the first item; or the data set
            cannot be handed to it.

    Example:
        >>> import poptorch, torch
        >>> data = torch.utils.data.TensorDataset(torch.arange(3.0))
        >>> accessor = poptorch.AsynchronousDataAccessor(
        ...     data, sharing_strategy=poptorch.SharingStrategy.Fork)
        >>> [x.item() for [x] in accessor]
        [0.0, 1.0, 2.0]
        >>> accessor.terminate()
    """

    def __init__(self, dataset: Iterable[Any] | Dataset[Any], buffer_size: int = 3,
                 miss_sleep_time_in_ms: float = 0.1, load_indefinitely: bool = True,
                 early_preload: bool = False,
                 sharing_strategy: SharingStrategy = SharingStrategy.ForkServer,
                 rebatched_size: int | None = None):
        where = "AsynchronousDataAccessor"
        at_least(1, buffer_size, f"{where} buffer_size")
        Bool()(load_indefinitely, f"{where} load_indefinitely")
        Bool()(early_preload, f"{where} early_preload")
        one_of(SharingStrategy, sharing_strategy, f"{where} sharing_strategy")
        if rebatched_size is not None:
            at_least(1, rebatched_size, f"{where} rebatched_size")
        rest_ms = Number(has_zero=True)(miss_sleep_time_in_ms, f"{where} miss_sleep_time_in_ms")
        self._settings = _worker.Settings(
            slots=buffer_size + 1, rest_s=rest_ms / 1000,
            load_indefinitely=load_indefinitely, early_preload=early_preload,
            random_state=RandomState())
        self._settings.random_state.leave()
        self._source = _source_of(dataset, rebatched_size)
        self._changes = Changes(self._source.data)
        self._epoch, self._is_untouched, self._message = 0, True, None
        self._iterators = 0  # how many were made
        self._process = os.getpid()
        self._start(sharing_strategy)

    def terminate(self) -> None:
        """Ends the process, within five seconds, whatever it does; the accessor cannot be used
        any more.

        Example:
            >>> import poptorch
            >>> accessor = poptorch.AsynchronousDataAccessor(
            ...     range(3), sharing_strategy=poptorch.SharingStrategy.Fork)
            >>> accessor.terminate()
        """
        self._link.end()

    def __len__(self) -> int:
        return len(self._source)

    def __iter__(self) -> Iterator[Any]:
        if not self._is_untouched:
            self._epoch += 1
        self._check_is_open()
        self._changes.warn()
        self._is_untouched = True
        self._link.send(_worker.WANT_EPOCH, self._epoch)
        self._iterators += 1
        return self._items(self._iterators)

    def _start(self, strategy: SharingStrategy) -> None:
        process, connection, has_begun = launch(strategy, self._source, self._settings)
        self._link = WorkerLink(process, connection)
        hint = ""
        if strategy is not SharingStrategy.Fork:
            hint = (f" A program that uses SharingStrategy.{strategy.name} must be importable: "
                    f"guard its main part by if __name__ == \"__main__\".")
        try:
            self._message = self._link.receive()
            if self._message[0] == "error":
                hint = ""
                self._message[2].reraise()
        except Exception as error:
            self._link.end()
            raise Error(f"[AsynchronousDataAccessor] the worker thread failed to start: "
                        f"{error}{hint}") from error
        finally:
            has_begun()

    def _items(self, iterator: int) -> Iterator[Any]:
        """The items of an epoch, for the iterator of a number."""
        while True:
            if iterator != self._iterators:
                raise Error("[AsynchronousDataAccessor] this iterator is no longer valid: a newer "
                            "one was made of the same loader. Use one iterator at a time.")
            self._check_is_open()
            self._is_untouched = False
            self._link.free_delivered(keep=1)
            message = self._receive(self._epoch)
            if message[0] == "error":
                message[2].reraise()
            if message[0] == "end":
                return
            yield self._link.item_of(message)

    def _receive(self, epoch: int) -> tuple:
        """The next message of an epoch; items of earlier epochs are dropped."""
        while True:
            message, self._message = self._message or self._link.receive(), None
            if message[1] == epoch:
                return message
            if message[0] == "item":
                self._link.free(message[2])

    @property
    def _is_of_this_process(self) -> bool:
        """Whether no fork has taken it along: two readers would take items from each other."""
        return self._process == os.getpid()

    def _check_is_open(self) -> None:
        if not self._is_of_this_process:
            raise Error("[AsynchronousDataAccessor] this process was forked from the one that made "
                        "the accessor, which alone may read from it. Make one here.")
        if not self._link.is_open:
            raise Error("[AsynchronousDataAccessor] its process was ended by terminate() or by an "
                        "error. Make a new loader.")


def _source_of(dataset, rebatched_size: int | None) -> Source:
    """What to read in the process."""
    if isinstance(dataset, Source):
        return dataset
    if not isinstance(dataset, Dataset) and not hasattr(dataset, "__iter__"):
        raise TypeError(f"[AsynchronousDataAccessor] expected a data set, a DataLoader or another "
                        f"iterable, got {type(dataset).__name__}.")
    if rebatched_size is None:
        return Source(dataset)
    if not isinstance(dataset, TorchDataLoader):
        return CollatedSource(dataset, rebatched_size)
    if dataset.batch_size != 1:
        raise ValueError(f"[AsynchronousDataAccessor rebatched_size] the loader must have a batch "
                         f"size of 1, got {dataset.batch_size}. Join the samples in one place.")
    return RebatchedSource(dataset, rebatched_size, 1, dataset.drop_last)

"""A torch DataLoader whose items are as large as one call of the model takes."""

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import torch.utils.data
from torch.utils.data import IterableDataset

from poptorch._base.checks import Bool, at_least, near_names, one_of
from poptorch._base.logging import logger
from poptorch.data._accessor import AsynchronousDataAccessor
from poptorch.data._joining import join
from poptorch.data._partition import PartitionSampler
from poptorch.data._sources import RebatchedSource
from poptorch.enums import DataLoaderMode
from poptorch.options import Options
from poptorch.options._options import checked_options

# The class itself: a program may put ours in its place in torch.utils.data.
_TorchDataLoader = torch.utils.data.DataLoader

_ASYNC_OPTIONS = ("buffer_size", "miss_sleep_time_in_ms", "load_indefinitely", "early_preload",
                  "sharing_strategy")


class DataLoader(_TorchDataLoader):
    """Loads items for a model that was wrapped with the same options.

    Each item holds ``combinedBatchSize`` samples: the batch size times device iterations,
    replicas (divided by the input group size) and gradient accumulation. Building a loader
    freezes the options. In all else it is a ``torch.utils.data.DataLoader``, whose ``batch_size``
    is the combined one.

    With ``options.Distributed`` set to several processes, each reads its own part: contiguous
    runs of the data set in the order of the processes, or, with ``shuffle``, of a permutation
    that ``options.randomSeed`` and the number of the epoch determine.

    Args:
        options: the options of the model that the data is for.
        dataset: a map-style or iterable data set.
        batch_size: samples of one micro-batch, at least 1, default 1; None: samples come as they
            are, neither batched nor joined.
        shuffle: draw the samples in random order, a new one each epoch; default False.
        num_workers: worker processes that load, default 0 (none of their own).
        drop_last: leave out the samples at the end that do not fill an item, default True. With
            an iterable data set, each worker does so (but see ``AsyncRebatched``).
        persistent_workers: keep the workers between epochs; None (default): when there are some.
        auto_distributed_partitioning: divide the data set among processes, default True; False:
            it is divided already, as iterable data sets and samplers of the user's must be.
        mode: load in this process (``DataLoaderMode.Sync``, the default) or ahead in another,
            see :class:`DataLoaderMode`.
        async_options: arguments of :class:`AsynchronousDataAccessor`, but for ``dataset`` and
            ``rebatched_size``; used by modes other than ``Sync``.
        rebatched_worker_size: with ``AsyncRebatched`` and an iterable data set, samples that a
            worker loads at once, 1 up to the combined batch size (the default). 1 lets a
            ``collate_fn`` return tensors without a batch dimension. Other modes ignore it.
        batch_sampler: draws the indices of one micro-batch at a time; each is collated by
            itself, and the micro-batches of an item are joined along dimension 0 (see also
            :func:`poptorch.registerCustomArgParser`). Not together with ``batch_size``,
            ``shuffle`` or ``sampler``.
        kwargs: passed on to ``torch.utils.data.DataLoader``.

    Raises:
        TypeError: An argument is of the wrong kind, or ``async_options`` has an unknown name.
        ValueError: An argument is out of range, or two exclude each other.
        poptorch.Error: The process of an asynchronous mode fails to start.

    Example:
        >>> import poptorch, torch
        >>> opts = poptorch.Options().deviceIterations(2)
        >>> data = torch.utils.data.TensorDataset(torch.arange(12.0))
        >>> loader = poptorch.DataLoader(opts, data, batch_size=3)
        >>> loader.combinedBatchSize, len(loader)
        (6, 2)
        >>> [x] = next(iter(loader))
        >>> x
        tensor([0., 1., 2., 3., 4., 5.])
    """

    # Defaults of the class, for objects whose __init__ is called late.
    _options = None
    _mode = DataLoaderMode.Sync
    _accessor = None
    _combined_batch_size = None
    _joined_micro_batches = 1
    _drops_last_item = False

    def __init__(self, options: Options, dataset: Any, batch_size: int | None = 1,
                 shuffle: bool | None = None, num_workers: int = 0, drop_last: bool = True,
                 persistent_workers: bool | None = None,
                 auto_distributed_partitioning: bool = True,
                 mode: DataLoaderMode = DataLoaderMode.Sync,
                 async_options: dict[str, Any] | None = None,
                 rebatched_worker_size: int | None = None, batch_sampler: Any = None,
                 **kwargs: Any):
        options = checked_options(options, "DataLoader")
        one_of(DataLoaderMode, mode, "DataLoader mode")
        Bool()(auto_distributed_partitioning, "DataLoader auto_distributed_partitioning")
        at_least(0, num_workers, "DataLoader num_workers")
        _check_async_options(async_options)
        self._options, self._mode = options, mode
        self._async_options = dict(async_options or {})
        self._drops_last_item = bool(drop_last) and batch_size is not None
        micro_batches = _micro_batches_per_item(options)
        self._joined_micro_batches = 1 if batch_sampler is None else micro_batches
        self._combined_batch_size = None
        if batch_size is not None and batch_sampler is None:
            at_least(1, batch_size, "DataLoader batch_size")
            self._combined_batch_size = batch_size * micro_batches
        step = self._worker_step(dataset, rebatched_worker_size)
        if auto_distributed_partitioning and options.Distributed.numProcesses > 1:
            kwargs["sampler"] = self._partition(dataset, shuffle, batch_sampler, kwargs)
            shuffle = None
        super().__init__(
            dataset=dataset, batch_size=step if batch_sampler is None else batch_size,
            shuffle=shuffle, batch_sampler=batch_sampler, num_workers=num_workers,
            drop_last=(self._drops_last_item and batch_sampler is None
                       and not self._is_rebatched(dataset)),
            persistent_workers=(persistent_workers is None or bool(persistent_workers))
            and num_workers > 0, **kwargs)
        self._warn_if_empty()
        if mode is not DataLoaderMode.Sync:
            self._start()
        options._freeze()

    @property
    def combinedBatchSize(self) -> int | None:
        """Samples that one call of the model consumes; None when ``batch_size`` is None, or a
        ``batch_sampler`` decides.

        Example:
            >>> import poptorch
            >>> options = poptorch.Options().deviceIterations(3)
            >>> poptorch.DataLoader(options, range(60), batch_size=4).combinedBatchSize
            12
        """
        return self._combined_batch_size

    @property
    def options(self) -> Options:
        """The options that this loader was built with; they are frozen.

        Example:
            >>> import poptorch
            >>> options = poptorch.Options()
            >>> poptorch.DataLoader(options, range(60)).options is options
            True
        """
        return self._options

    def terminate(self) -> None:
        """Ends the process of an asynchronous loader, which cannot be used any more then; without
        effect in ``DataLoaderMode.Sync``.

        Example:
            >>> import poptorch, torch
            >>> loader = poptorch.DataLoader(poptorch.Options(), torch.arange(3))
            >>> loader.terminate()
        """
        if self._accessor is not None:
            self._accessor.terminate()

    def _warn_if_empty(self) -> None:
        if not self._drops_last_item or self._combined_batch_size is None:
            return
        try:
            samples, items = len(self.sampler), len(self)
        except TypeError:  # of a stream, or a sampler, that has no length
            return
        if samples and not items:
            logger.warning("[DataLoader] the data set has %d samples, but batch_size and the "
                           "options ask for items of %d: the loader has no items. Pass "
                           "drop_last=False, or reduce batch_size, deviceIterations, "
                           "gradientAccumulation or replicationFactor.", samples,
                           self._combined_batch_size)

    def __len__(self) -> int:
        if self._is_rebatched(self.dataset):
            length, size = len(self.dataset), self._combined_batch_size
        else:
            length, size = super().__len__(), self._joined_micro_batches
        return length // size if self._drops_last_item else -(-length // size)

    def __iter__(self) -> Iterator[Any]:
        if self._mode is not DataLoaderMode.Sync:
            if self._accessor is None or not self._accessor._is_of_this_process:
                self._start()
            return iter(self._accessor)
        batches = super().__iter__()
        if self._joined_micro_batches == 1:
            return batches
        return _joined(batches, self._joined_micro_batches, self._drops_last_item)

    def __getstate__(self) -> dict:
        # A copy, or the object that another process gets, starts a process of its own if need be.
        return {**self.__dict__, "_accessor": None, "_iterator": None}

    def _start(self) -> AsynchronousDataAccessor:
        # The process iterates over this loader in Sync mode.
        source = copy.copy(self)
        source.__dict__["_mode"] = DataLoaderMode.Sync
        if self._is_rebatched(self.dataset):
            source = RebatchedSource(source, self._combined_batch_size, self.batch_size,
                                     self._drops_last_item)
        self._accessor = AsynchronousDataAccessor(source, **self._async_options)
        return self._accessor

    def _is_rebatched(self, dataset) -> bool:
        return (self._mode is DataLoaderMode.AsyncRebatched
                and isinstance(dataset, IterableDataset)
                and self._combined_batch_size is not None)

    def _worker_step(self, dataset, rebatched_worker_size: int | None) -> int | None:
        """Samples of what torch's loader gives at once."""
        combined = self._combined_batch_size
        where = "DataLoader rebatched_worker_size"
        if rebatched_worker_size is not None:
            at_least(1, rebatched_worker_size, where)
        if rebatched_worker_size is None or not self._is_rebatched(dataset):
            return combined
        if rebatched_worker_size > combined:
            raise ValueError(f"[{where}] expected at most the combined batch size {combined}, got "
                             f"{rebatched_worker_size}.")
        return rebatched_worker_size

    def _partition(self, dataset, shuffle, batch_sampler, kwargs) -> PartitionSampler:
        """The sampler of this process's part of the data set."""
        unfit = [what for what, is_there in [
            ("an iterable data set", isinstance(dataset, IterableDataset)),
            ("a sampler", kwargs.get("sampler") is not None),
            ("a batch_sampler", batch_sampler is not None)] if is_there]
        distributed = self._options.Distributed
        if unfit:
            raise ValueError(f"[DataLoader auto_distributed_partitioning] {unfit[0]} cannot be "
                             f"divided among {distributed.numProcesses} processes. Let it give "
                             f"each process its own samples, and pass "
                             f"auto_distributed_partitioning=False.")
        if shuffle and self._options.random_seed is None:
            raise ValueError(f"[DataLoader shuffle] {distributed.numProcesses} processes must "
                             f"shuffle in the same way. Call options.randomSeed(n) with the same "
                             f"n in all of them.")
        return PartitionSampler(len(dataset), distributed.processId, distributed.numProcesses,
                                self._combined_batch_size or 1, self._drops_last_item,
                                self._options.random_seed if shuffle else None)


def _joined(batches: Iterator, count: int, drop_last: bool) -> Iterator:
    """Items of ``count`` micro-batches each."""
    while parts := list(itertools.islice(batches, count)):
        if len(parts) == count or not drop_last:
            yield join(parts)


def _micro_batches_per_item(options: Options) -> int:
    return (options.device_iterations * options.Training.gradient_accumulation
            * (options.replication_factor // options.input_group_size))


def _check_async_options(async_options) -> None:
    if async_options is None:
        return
    if not isinstance(async_options, dict):
        raise TypeError(f"[DataLoader async_options] expected a dictionary, got "
                        f"{type(async_options).__name__}.")
    unknown = [str(name) for name in async_options if name not in _ASYNC_OPTIONS]
    if unknown:
        raise TypeError(f"[DataLoader async_options] unknown: {', '.join(unknown)}."
                        f"{near_names(unknown[0], _ASYNC_OPTIONS)} Options: "
                        f"{', '.join(_ASYNC_OPTIONS)}.")

"""A torch DataLoader whose batches are as large as one call of the model wants."""

import torch.utils.data

from poptorch.enums import DataLoaderMode
from poptorch.options import Options
from poptorch.options._group import at_least, one_of

_TorchDataLoader = torch.utils.data.DataLoader


class DataLoader(_TorchDataLoader):
    """Loads batches for a model that was wrapped with the same options.

    Each item holds ``combinedBatchSize`` samples: the batch size times device iterations,
    replicas and gradient accumulation. Building a loader freezes the options.

    Args:
        options: the options of the model that the data is for.
        dataset: a map-style or iterable data set.
        batch_size: samples of one micro-batch, default 1; None: items come unbatched.
        shuffle: draw the samples in random order, a new one each epoch; default False.
        num_workers: worker processes that load, default 0 (the calling process).
        drop_last: leave out the samples at the end that do not fill an item, default True.
        persistent_workers: keep the workers between epochs; None (default): when there are some.
        mode: ``DataLoaderMode.Sync``.
        kwargs: passed on to ``torch.utils.data.DataLoader``.

    Raises:
        TypeError: ``options`` is not a :class:`poptorch.Options`.
        ValueError: ``batch_size`` is less than 1.

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

    def __init__(self, options: Options, dataset, batch_size: int | None = 1,
                 shuffle: bool | None = None, num_workers: int = 0, drop_last: bool = True,
                 persistent_workers: bool | None = None,
                 mode: DataLoaderMode = DataLoaderMode.Sync, **kwargs):
        if not isinstance(options, Options):
            raise TypeError(f"[DataLoader] the first argument, options, must be a "
                            f"poptorch.Options, got {type(options).__name__}.")
        one_of(DataLoaderMode, mode, "DataLoader mode")
        options._freeze()
        self._options = options
        self._combined_batch_size = None
        if batch_size is not None:
            self._combined_batch_size = (at_least(1, batch_size, "DataLoader batch_size")
                                         * options.device_iterations * options.replication_factor
                                         * options.Training.gradient_accumulation)
        if persistent_workers is None:
            persistent_workers = num_workers > 0
        if batch_size is None:
            drop_last = False
        _TorchDataLoader.__init__(self, dataset, batch_size=self._combined_batch_size,
                                  shuffle=shuffle, num_workers=num_workers, drop_last=drop_last,
                                  persistent_workers=persistent_workers and num_workers > 0,
                                  **kwargs)

    @property
    def combinedBatchSize(self) -> int | None:
        """Samples that one call of the model consumes; None when ``batch_size`` is None."""
        return self._combined_batch_size

    @property
    def options(self) -> Options:
        """The options that this loader was built with."""
        return self._options

    def terminate(self) -> None:
        """Stops background loading; nothing to do in ``DataLoaderMode.Sync``."""

"""What an asynchronous accessor reads: any iterable or data set, as items, epoch by epoch."""

import itertools
import random
from collections.abc import Iterator

import numpy
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from poptorch.data._joining import join, row_count, rows

# Of 64 bits: more than the seeds that loaders draw for many epochs.
_DRAWS = 10_000


class Source:
    """The items of a data set, a torch loader or another iterable."""

    def __init__(self, data):
        self.data = data

    def __iter__(self) -> Iterator:
        if isinstance(self.data, Dataset) and not isinstance(self.data, IterableDataset):
            return (self.data[i] for i in range(len(self.data)))
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def forget_iterator(self) -> None:
        """Lets go of workers that are kept between epochs: after an error they may be dead."""
        if isinstance(self.data, DataLoader):
            self.data._iterator = None


class CollatedSource(Source):
    """Batches of ``size`` samples of a data set, collated as torch's loader does by default.

    What does not fill a batch at the end is left out.
    """

    def __init__(self, data, size: int):
        super().__init__(data)
        self._size = size

    def __iter__(self) -> Iterator:
        samples = super().__iter__()
        while len(batch := list(itertools.islice(samples, self._size))) == self._size:
            yield default_collate(batch)

    def __len__(self) -> int:
        return super().__len__() // self._size


class RebatchedSource(Source):
    """The batches of a loader put together, or cut, to items of ``size`` samples.

    A full batch has ``step`` samples. With 1 a batch is never cut, and its tensors need not have
    the samples along dimension 0.
    """

    def __init__(self, data, size: int, step: int, drop_last: bool):
        super().__init__(data)
        self._size, self._step, self._drop_last = size, step, drop_last

    def __iter__(self) -> Iterator:
        parts, missing = [], self._size
        for batch in super().__iter__():
            first, length = 0, 1 if self._step == 1 else row_count(batch)
            while first < length:
                count = min(missing, length - first)
                parts.append(batch if count == length else rows(batch, first, first + count))
                first, missing = first + count, missing - count
                if missing == 0:
                    yield self._joined(parts)
                    parts, missing = [], self._size
        if parts and not self._drop_last:
            yield self._joined(parts)

    def _joined(self, parts: list):
        return join(parts) if self._size > 1 else parts[0]

    def __len__(self) -> int:
        samples = super().__len__() * self._step
        return samples // self._size if self._drop_last else -(-samples // self._size)


class RandomState:
    """The state of the random generators of torch, NumPy and Python, to be set elsewhere."""

    def __init__(self):
        self._torch = torch.get_rng_state()
        self._python = random.getstate()
        self._numpy = numpy.random.get_state()

    def leave(self) -> None:
        """Moves the generators of this process on, far enough that what is drawn in an epoch here
        and where the state was set differs."""
        torch.empty(_DRAWS, dtype=torch.int64).random_()
        random.getrandbits(64 * _DRAWS)
        numpy.random.bytes(8 * _DRAWS)

    def restore(self) -> None:
        """Sets the generators of this process."""
        torch.set_rng_state(self._torch)
        random.setstate(self._python)
        numpy.random.set_state(self._numpy)

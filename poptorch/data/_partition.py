"""The part of a data set that one of several processes reads."""

import numpy
import torch
from torch.utils.data import Sampler


class PartitionSampler(Sampler):
    """Indices for one process; those of all processes are disjoint, by a rule that all share.

    The samples, in their order or in the epoch's permutation, are cut into one contiguous run
    for each process. With ``drop_last`` the runs are of equal length and what does not fill an
    item is left out; without, they are the whole data set and differ in length by at most one.

    The permutation depends on ``seed`` and the number of the epoch only. Whatever an even epoch
    leaves out is drawn in the odd one after it, as far as there is room. Without a seed the order
    is that of the data set.
    """

    def __init__(self, size: int, process_id: int, num_processes: int, batch: int,
                 drop_last: bool, seed: int | None = None):
        self._size, self._num_processes, self._batch = size, num_processes, batch
        self._drop_last, self._seed = drop_last, seed
        self._first, self._last = self._run_of(process_id)
        self._epoch = 0

    def __len__(self) -> int:
        return self._last - self._first

    def __iter__(self):
        epoch, self._epoch = self._epoch, self._epoch + 1
        if self._seed is None:
            yield from range(self._first, self._last)
        else:
            yield from self._order(epoch)[self._first:self._last].tolist()

    def _run_of(self, process: int) -> tuple[int, int]:
        if self._drop_last:
            length = self._size // self._num_processes
            return process * length, (process + 1) * length
        return tuple((process + i) * self._size // self._num_processes for i in (0, 1))

    def _order(self, epoch: int) -> torch.Tensor:
        order = self._permutation(epoch)
        is_used = self._used_positions()
        if epoch % 2 == 0 or bool(is_used.all()):
            return order
        # Positions that no process reads, with samples that were left out the last time as well,
        # change places with samples that have had their turn.
        had_turn = torch.zeros(self._size, dtype=torch.bool)
        had_turn[self._permutation(epoch - 1)[is_used]] = True
        unlucky = torch.nonzero(~is_used & ~had_turn[order]).flatten()
        partners = torch.nonzero(is_used & had_turn[order]).flatten()
        partners = partners[torch.randperm(len(partners), generator=self._generator(epoch, 1))]
        count = min(len(unlucky), len(partners))
        one, other = unlucky[:count], partners[:count]
        order[one], order[other] = order[other], order[one]
        return order

    def _used_positions(self) -> torch.Tensor:
        """Which positions of the permutation some process reads."""
        is_used = torch.zeros(self._size, dtype=torch.bool)
        for process in range(self._num_processes):
            first, last = self._run_of(process)
            if self._drop_last:
                last -= (last - first) % self._batch
            is_used[first:last] = True
        return is_used

    def _permutation(self, epoch: int) -> torch.Tensor:
        return torch.randperm(self._size, generator=self._generator(epoch, 0))

    def _generator(self, epoch: int, stream: int) -> torch.Generator:
        words = numpy.random.SeedSequence([self._seed % 2**64, epoch, stream])
        return torch.Generator().manual_seed(int(words.generate_state(1, numpy.uint64)[0] >> 1))

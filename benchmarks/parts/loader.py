"""How long a model waits for data: poptorch.DataLoader and torch's, with the same workers.

The data set is image-like: a sample is cut out of an array, at random, mirrored at times, made a
float tensor and normalized; a decoder that uses the processor for so many milliseconds stands
for reading a compressed file. The model is a small convolution net on one thread, so that a core
is free to load, and all loaders feed the same executor in turns.
"""

import statistics
import time

import torch
from torch.utils.data import DataLoader, Dataset

import poptorch
from benchmarks.part import Part, ratio
from benchmarks.table import MODE, WORKLOAD, Column

SAMPLES, BATCH, SIDE = 1024, 16, 128
LEAST_S = 0.5  # of a turn: an item takes up to 0.04 s
DECODE_MS = (0.0, 2.0)
WORKERS = (0, 1, 2)
TORCH = "torch"

COLUMNS = [
    WORKLOAD,
    MODE,
    Column("loader", "loader", "", -8),
    Column("rate", "items/s", ".0f"),
    Column("idle", "idle", ".1%"),
    Column("ratio", "x torch", ".2f"),
]


class Images(Dataset):
    """Pictures of ``SIDE`` x ``SIDE`` out of larger ones, with labels.

    Args:
        decode_ms: processor time that each sample costs in addition to its augmentation.
    """

    def __init__(self, decode_ms):
        self.decode_s = decode_ms / 1e3
        generator = torch.Generator().manual_seed(0)
        size = SIDE + 16
        self.pictures = torch.randint(0, 256, (32, 3, size, size), dtype=torch.uint8,
                                      generator=generator)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        end = time.thread_time() + self.decode_s
        while time.thread_time() < end:
            pass
        top, left, is_mirrored = torch.randint(0, 16, (3,)).tolist()
        picture = self.pictures[index % 32, :, top:top + SIDE, left:left + SIDE]
        if is_mirrored % 2:
            picture = picture.flip(2)
        return picture.float().sub_(127.5).mul_(1 / 64), index % 10


def make_model(options):
    """A net that takes some milliseconds for a batch."""
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 32, 5, 4, 2), torch.nn.ReLU()]
    for _ in range(2):
        layers += [torch.nn.Conv2d(32, 32, 3, 1, 1), torch.nn.ReLU()]
    layers += [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(32, 10)]
    return poptorch.inferenceModel(torch.nn.Sequential(*layers).eval(), options)


def make_loaders(options, decode_ms, workers):
    """A loader of each kind, by name."""
    data, mode = Images(decode_ms), poptorch.DataLoaderMode

    def ours(how):
        return poptorch.DataLoader(options, data, batch_size=BATCH, num_workers=workers, mode=how,
                                   shuffle=True, async_options={"buffer_size": 4})

    return {
        TORCH: DataLoader(data, batch_size=BATCH, num_workers=workers, shuffle=True,
                          drop_last=True, persistent_workers=workers > 0),
        "sync": ours(mode.Sync),
        "async": ours(mode.Async),
    }


def timed(model, loader, least_s):
    """Epochs until ``least_s`` have passed: samples a second, and the share spent waiting."""
    samples, waited, start = 0, 0.0, time.perf_counter()
    while time.perf_counter() - start < least_s:
        iterator = iter(loader)
        while True:
            before = time.perf_counter()
            item = next(iterator, None)
            waited += time.perf_counter() - before
            if item is None or time.perf_counter() - start > 3 * least_s:
                break
            model(item[0])
            samples += len(item[0])
    wall = time.perf_counter() - start
    return samples / wall, waited / wall


def _measure(plan):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    options = poptorch.Options().showCompilationProgressBar(False)
    model = make_model(options)
    model(torch.zeros(BATCH, 3, SIDE, SIDE))
    workers = WORKERS[:2] if plan.quick else WORKERS
    for decode_ms, count in plan.pace.each((d, n) for d in DECODE_MS for n in workers):
        loaders = make_loaders(options, decode_ms, count)
        found = {name: [] for name in loaders}
        for turn in range(plan.rounds + 1):
            if turn > 1 and not plan.pace.left_s():
                break
            for name in list(loaders)[:: 1 if turn % 2 else -1]:
                plan.pace.tell(f"decode {decode_ms:g} ms, {count} workers: {name}")
                found[name].append(timed(model, loaders[name], max(plan.block_s, LEAST_S)))
        loaders["async"].terminate()
        yield _rows(decode_ms, count, found)
    model.destroy()
    torch.set_num_threads(threads)


def _rows(decode_ms, workers, found):
    # The first turn starts workers and warms memory up.
    medians = {name: [statistics.median(values) for values in zip(*turns[1:])]
               for name, turns in found.items()}
    return [{"workload": f"decode {decode_ms:g} ms", "mode": f"{workers} workers", "loader": name,
             "rate": rate, "idle": idle, "ratio": ratio(rate, medians[TORCH][0])}
            for name, (rate, idle) in medians.items()]


PART = Part("loader", "data loading: samples per second, and the share of time that a model waits",
            COLUMNS, _measure, minutes=(1.5, 0.7), keys=("workload", "mode", "loader"))

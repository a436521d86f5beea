"""What programs do with loaders beyond the documentation of PopTorch."""

import functools
import inspect
import json

import pytest
import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import TensorDataset

import poptorch
from tests.data.datasets import (
    ASYNC,
    FORK,
    REBATCHED,
    Stream,
    loading,
    numbers,
    options,
    values,
)
from tests.helpers import run_python

MODES = pytest.mark.parametrize("mode", list(poptorch.DataLoaderMode))


class LibraryLoader(TorchDataLoader):
    """The loader of a library that does not support poptorch, with a collate function."""

    def __init__(self, dataset, batch_size=1, shuffle=False, follow=None, **kwargs):
        kwargs.pop("collate_fn", None)
        self.follow = follow or []
        super().__init__(dataset, batch_size, shuffle,
                         collate_fn=lambda rows: torch.stack([x for x, in rows]), **kwargs)


class OptionsFirst(poptorch.DataLoader, LibraryLoader):
    """Ours before the library's."""


class LibraryFirst(LibraryLoader):
    """A base that passes on all it does not know."""

    def __init__(self, dataset, options, **kwargs):
        super(LibraryLoader, self).__init__(dataset=dataset, options=options, **kwargs)


class Both(LibraryFirst, poptorch.DataLoader):
    """The library's before ours; attributes are set before the loader is."""

    def __init__(self, dataset, batch_size, options, **kwargs):
        self.batch_size = batch_size
        self.dataset = dataset
        self.is_training = True
        super().__init__(dataset=dataset, batch_size=batch_size, options=options, **kwargs)


@MODES
def test_multiple_inheritance(mode):
    arguments = {"mode": mode, "async_options": FORK}
    with loading(OptionsFirst(options(2), numbers(), 5, **arguments)) as loader:
        assert loader.follow == [] and [len(x) for x in loader] == [10, 10]
    with loading(Both(numbers(), 5, options(2), **arguments)) as loader:
        assert loader.is_training and loader.combinedBatchSize == 10
        assert [len(x) for [x] in loader] == [10, 10]


class LateLoader(poptorch.DataLoader):
    """Built first, initialised when the options are known."""

    def __new__(cls, *args, **kwargs):
        loader = super().__new__(cls)
        loader.arguments = args
        return loader

    def __init__(self, *args, **kwargs):
        """Waits for the options."""

    def start(self, opts, **kwargs):
        """The delayed initialisation."""
        super().__init__(opts, *self.arguments, **kwargs)


@MODES
def test_late_initialisation(mode):
    loader = LateLoader(numbers(), 5)
    loader.terminate()
    assert loader.options is None and loader.combinedBatchSize is None
    loader.start(options(2), mode=mode, async_options=FORK)
    with loading(loader):
        assert values(loader) == list(range(20)) and loader.combinedBatchSize == 10


@MODES
def test_in_place_of_torchs_class(monkeypatch, mode):
    partial = functools.partialmethod(poptorch.DataLoader.__init__, options(2), mode=mode,
                                      async_options=FORK)
    monkeypatch.setattr(poptorch.DataLoader, "__init__", partial)
    monkeypatch.setattr(torch.utils.data, "DataLoader", poptorch.DataLoader)
    with loading(torch.utils.data.DataLoader(numbers(), batch_size=5, num_workers=1)) as loader:
        assert values(loader) == list(range(20)) and len(loader) == 2
        assert isinstance(loader, torch.utils.data.DataLoader)


def test_signature():
    parameters = inspect.signature(poptorch.DataLoader.__init__).parameters
    assert list(parameters)[:3] == ["self", "options", "dataset"]
    kinds = {p.name: p.kind for p in parameters.values()}
    assert kinds.pop("kwargs") is inspect.Parameter.VAR_KEYWORD
    assert set(kinds.values()) == {inspect.Parameter.POSITIONAL_OR_KEYWORD}


@pytest.mark.parametrize("arguments", [
    {"batch_size": 3, "shuffle": True}, {"sampler": [4, 2, 0]}, {"num_workers": 1},
    {"batch_sampler": [[1, 2], [3]]}, {"batch_size": 4, "drop_last": True}])
def test_a_torch_loader_is_made_anew_as_ours(arguments):
    """As a framework does that reads the arguments from the attributes of the loader."""
    given = TorchDataLoader(numbers(), **arguments)
    attributes = {k: v for k, v in vars(given).items() if not k.startswith("_")}
    attributes["multiprocessing_context"] = given.multiprocessing_context
    names = set(inspect.signature(TorchDataLoader.__init__).parameters) - {"self"}
    kwargs = {name: attributes[name] for name in names if name in attributes}
    if "batch_sampler" in arguments:
        kwargs |= {"batch_size": 1, "sampler": None, "shuffle": False, "drop_last": False}
    else:
        kwargs |= {"batch_sampler": None, "shuffle": False}
    ours = poptorch.DataLoader(options(), **kwargs)
    assert len(values(ours)) == len(values(given)) and ours.sampler is not None
    assert ours.multiprocessing_context is None and ours.num_workers == given.num_workers


def test_persistent_workers_without_workers():
    loader = poptorch.DataLoader(options(), numbers(), persistent_workers=True)
    assert values(loader) == list(range(20)) and not loader.persistent_workers


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_many_workers():
    with loading(poptorch.DataLoader(options(), Stream(80), num_workers=40, mode=REBATCHED,
                                     batch_size=4, rebatched_worker_size=2,
                                     async_options=FORK)) as loader:
        assert sorted(values(loader)) == list(range(80))


def test_all_async_options():
    async_options = {"load_indefinitely": True, "buffer_size": 8, "early_preload": True,
                     "sharing_strategy": poptorch.SharingStrategy.Fork,
                     "miss_sleep_time_in_ms": 0}
    with loading(poptorch.DataLoader(options(2), Stream(12), 2, mode=REBATCHED,
                                     rebatched_worker_size=1,
                                     async_options=async_options)) as loader:
        for _ in range(3):
            assert values(loader) == list(range(12))


class Batch:
    """A batch of a graph library: everything along one dimension."""

    def __init__(self, x, ptr):
        self.x, self.ptr = x, ptr


class BatchParser(poptorch.ICustomArgParser):
    """Its parser."""

    def yieldTensors(self, struct):
        yield struct.x
        yield struct.ptr

    def reconstruct(self, original_structure, tensor_iterator):
        return Batch(*tensor_iterator)


def collate(rows):
    return Batch(torch.stack([x for x, in rows]), torch.tensor([0, len(rows)]))


@MODES
def test_graph_batches_of_a_batch_sampler(mode, monkeypatch):
    monkeypatch.setattr("poptorch.custom_args._parsers", {})
    poptorch.registerCustomArgParser(Batch, BatchParser())
    sampler = [[0, 1], [2], [3, 4, 5], [6]]
    with loading(poptorch.DataLoader(options(2), numbers(), batch_sampler=sampler,
                                     collate_fn=collate, mode=mode, num_workers=1,
                                     async_options=FORK)) as loader:
        assert [(b.x.tolist(), b.ptr.tolist()) for b in loader] == [
            ([0, 1, 2], [0, 2, 0, 1]), ([3, 4, 5, 6], [0, 3, 0, 1])]


def test_more_micro_batches_than_the_model_asks_for():
    """The model takes the item as larger micro-batches."""
    loader = poptorch.DataLoader(options(4), TensorDataset(torch.arange(16.0)), batch_size=2)
    opts = options(2).showCompilationProgressBar(False)
    opts.outputMode(poptorch.OutputMode.Final)
    model = poptorch.inferenceModel(torch.nn.Identity(), opts)
    assert [model(x).tolist() for [x] in loader] == [[4, 5, 6, 7], [12, 13, 14, 15]]
    model.destroy()


def test_one_options_object_for_several_loaders():
    opts = options(2)
    with loading(poptorch.DataLoader(opts, numbers(), mode=ASYNC, async_options=FORK)) as first:
        second = poptorch.DataLoader(opts, numbers(), batch_size=5)
        assert first.options is second.options is opts
        assert second.options.device_iterations == 2
        assert second.options.clone().deviceIterations(3).device_iterations == 3


def test_workers_get_what_torch_takes():
    def init(worker):
        torch.utils.data.get_worker_info().dataset.tensors[0].fill_(worker + 7)

    loader = poptorch.DataLoader(options(), numbers(), batch_size=10, num_workers=1,
                                 worker_init_fn=init, prefetch_factor=4, timeout=60,
                                 multiprocessing_context="fork")
    assert values(loader) == [7] * 20 and loader.prefetch_factor == 4


class Traced(torch.utils.data.Dataset):
    """Writes down in each worker what loading takes."""

    def __init__(self):
        self.channel = poptorch.profiling.Channel("data")

    def load(self, index):
        """A method that the program instruments."""
        return torch.tensor(float(index))

    def __getitem__(self, index):
        with self.channel.tracepoint(f"item {index}"):
            return self.load(index)

    def __len__(self):
        return 4


@pytest.mark.sampled
@MODES
def test_tracepoints_in_workers(mode, tmp_path):
    program = f"""
import poptorch
from tests.existing_programs.test_data import FORK, Traced
data = Traced()
data.channel.instrument(data, "load")
loader = poptorch.DataLoader(poptorch.Options(), data, batch_size=2, num_workers=2,
                             mode=poptorch.{mode}, async_options=FORK,
                             multiprocessing_context="fork")
assert [x.tolist() for x in loader] == [[0, 1], [2, 3]]
loader.terminate()
"""
    run_python(program, PVTI_OPTIONS=json.dumps({"enable": "true", "directory": str(tmp_path)}))
    text = "".join(path.read_text() for path in tmp_path.iterdir())
    assert all(f'"item {index}"' in text for index in range(4)) and '"Traced.load"' in text

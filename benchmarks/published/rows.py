"""Estimates of the rows of a file of published results."""

import re
from dataclasses import dataclass

import torch

import poptorch
from benchmarks.device_rows import NotBuilt
from benchmarks.published.networks import Bert, Gpt, Product, ResNet, Vit

TARGETS = {"GC200": "gc200", "Bow": "bow", "Bow (text)": "bow", "C600": "c600",
           "C600 (assumed)": "c600", "GC200 or Bow (M2000 shown)": "gc200"}
# Layers of each IPU, where the notes do not say it.
SPLITS = {(24, 4): (3, 7, 7, 7), (24, 8): (2, 3, 3, 3, 3, 3, 3, 4), (12, 4): (0, 4, 4, 4)}
# Masked tokens of a sequence.
MASKED = {128: 20, 384: 56, 512: 76}


@dataclass
class Result:
    """A row with its prediction; both in the units of the row."""

    row: dict
    predicted: float
    published: float
    low: float
    high: float
    fits: bool


def result_of(row):
    """The estimate of a row. Raises NotBuilt if there is no program."""
    if row["ipu_generation"] not in TARGETS:
        raise NotBuilt("the machine is not stated")
    if row["dtype"] not in ("16.16", "32.32"):
        raise NotBuilt(f"the type {row['dtype']} is not built")
    if row["model"].startswith("dense matmul"):
        return _product(row)
    micro = _number(row, "micro_batch")
    model, sample, label = _network(row)
    options, is_training = _options(row), "inference" not in row["task"]
    batch = micro * options.device_iterations * options.replication_factor
    optimizer = None
    if is_training:
        batch *= options.Training.gradient_accumulation
        optimizer = _optimizer(row, model)
    inputs = [torch.empty(batch, *sizes, dtype=dtype, device="meta")
              for sizes, dtype in ([sample, label] if is_training else [sample])]
    report = poptorch.estimate(model, options, *inputs, optimizer=optimizer)
    seconds = report.seconds + sum(report.host.values())
    return _result(row, report, _packing(row) * batch / seconds)


def _result(row, report, predicted):
    low, high = (report.cycles / cycles for cycles in reversed(report.interval))
    return Result(row, predicted, float(row["throughput"]), predicted * low, predicted * high,
                  report.fits)


def _number(row, name, default=None):
    if row[name]:
        return int(row[name])
    if default is None:
        raise NotBuilt(f"{name} is not stated")
    return default


def _packing(row):
    """Samples of a row of tokens."""
    found = re.search(r"(?:factor|avg) ([\d.]+)", row["notes"])
    return float(found[1]) if found else 1.0


def _split(row, layers):
    stages = _number(row, "pipeline_stages")
    found = re.search(r"layers ([\d/]+)", row["notes"])
    if found and "/" in found[1]:
        split = tuple(map(int, found[1].split("/")))
        split = (0,) * (stages - len(split)) + split
    elif stages == 1:
        split = (layers,)
    else:
        split = SPLITS.get((layers, stages), ())
    if len(split) != stages or sum(split) != layers:
        raise NotBuilt(f"the layers of {stages} stages are not stated")
    return split


def _network(row):
    """The model, and the sizes and types of a sample and of its label."""
    name, size = row["model"], row["seq_or_image"]
    if not size.isdigit():
        raise NotBuilt(f"the size {size!r} is not a number")
    size, dtype = int(size), torch.float16 if row["dtype"] == "16.16" else torch.float32
    with torch.device("meta"):
        if name in ("BERT-Large", "BERT-Base"):
            hidden, heads, layers = (1024, 16, 24) if name == "BERT-Large" else (768, 12, 12)
            masked = MASKED[size] if "pretraining" in row["task"] else 0
            model = Bert(hidden, heads, _split(row, layers), size, masked)
            sample, label = ((size,), torch.int64), ((masked or 2,), torch.int64)
        elif name.startswith("nanoGPT"):
            if "flash" in row["task"]:
                raise NotBuilt("attention in parts is not built")
            model = Gpt(384, 6, (6,), size)
            sample = label = (size,), torch.int64
        elif name in ("ResNet-50", "ViT-B/16"):
            model = ResNet() if name == "ResNet-50" else Vit(768, 12, _vit_split(row), size)
            sample, label = ((3, size, size), dtype), ((), torch.int64)
        else:
            raise NotBuilt(f"the network {name} is not defined")
    model.to(dtype)
    return model.train("inference" not in row["task"]), sample, label


def _vit_split(row):
    stages = _number(row, "pipeline_stages")
    return (12 // stages,) * stages


def _options(row):
    options = poptorch.Options().showCompilationProgressBar(False)
    options.target(TARGETS[row["ipu_generation"]])
    options.deviceIterations(_number(row, "device_iterations", 1))
    options.replicationFactor(_number(row, "replicas")).broadcastBuffers(False)
    options.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement))
    if "inference" not in row["task"]:
        options.Training.gradientAccumulation(_number(row, "grad_accum"))
    if row["dtype"] == "16.16":
        options.Precision.setPartialsType(torch.float16)
    found = re.search(r"AMP (\d\.\d+)", row["notes"])
    if found:
        options.setAvailableMemoryProportion(
            {f"IPU{ipu}": float(found[1]) for ipu in range(_number(row, "pipeline_stages", 1))})
    location = poptorch.TensorLocationSettings()
    if "off-chip" in row["notes"]:
        location.useOnChipStorage(False)
    if "RTS" in row["notes"] or "replicated tensor sharding" in row["notes"]:
        location.useReplicatedTensorSharding(True)
    options.TensorLocations.setOptimizerLocation(location)
    return options


def _optimizer(row, model):
    if row["model"] == "ResNet-50":
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if "pretraining" in row["task"]:
        half = torch.float16  # as in the published programs
        return poptorch.optim.LAMB(model.parameters(), lr=0.1, accum_type=half,
                                   first_order_momentum_accum_type=half)
    return torch.optim.AdamW(model.parameters())


def _product(row):
    """A product, in TFLOP/s, without the host."""
    m, k, n = map(int, row["seq_or_image"].split("x"))
    with torch.device("meta"):
        model = Product(k, n).half()
    options = poptorch.Options().target(TARGETS[row["ipu_generation"]])
    options.Precision.setPartialsType(torch.float16)
    x = torch.empty(m, k, dtype=torch.float16, device="meta")
    report = poptorch.estimate(model, options.showCompilationProgressBar(False), x)
    return _result(row, report, 2e-12 * m * k * n / report.seconds)

"""Estimates of the rows of a file of published results."""

import re
from dataclasses import dataclass

import torch

import poptorch
from benchmarks.device_rows import NotBuilt
from benchmarks.published.molecules import SchNet
from benchmarks.published.networks import Bert, Gpt, Product, Vit
from benchmarks.published.vision import EfficientNetB4, ResNet, UNet

TARGETS = {"GC200": "gc200", "Bow": "bow", "Bow (text)": "bow", "C600": "c600",
           "C600 (assumed)": "c600", "GC200 or Bow (M2000 shown)": "gc200"}
# Layers of each IPU, where the notes do not say it. Since MLPerf 1.1 the halves of a layer may be on
# different IPUs; the first IPU has the embedding and the head.
SPLITS = {(24, 4): (3, 7, 7, 7), (24, 8): (0, 3.5, 3.5, 3.5, 3.5, 3.5, 3.5, 3),
          (12, 4): (0, 4, 4, 4)}
# Masked tokens of a sequence.
MASKED = {128: 20, 384: 56, 512: 76}
# Memory proportions of the first IPU and of the others, of the published programs of a network.
PROPORTIONS = {("BERT-Large", "128"): (0.15, 0.25), ("BERT-Large", "384"): (0.15, 0.4),
               ("BERT-Large", "512"): (0.16, 0.21), ("BERT-Base", "128"): (0.25,),
               ("BERT-Base", "384"): (0.25,), ("ViT-B/16", "224"): (0.3,),
               ("ResNet-50", "224"): (0.15,),
               ("UNet (medical)", "572 (assumed)"): (0.2,)}  # not stated, below the default


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
    if row["dtype"] not in ("16.16", "32.32", "mixed"):
        raise NotBuilt(f"the type {row['dtype']} is not built")
    if "real data" in row["task"]:
        raise NotBuilt("the figure has the time of the host's data loader")
    if row["model"].startswith("dense matmul"):
        return _product(row)
    micro = _number(row, "micro_batch")
    is_training = "inference" not in row["task"]
    with torch.device("meta"):
        model, samples = _network(row)
    options = _options(row)
    batch = micro * options.device_iterations * options.replication_factor
    optimizer = None
    if is_training:
        batch *= options.Training.gradient_accumulation
        optimizer = _optimizer(row, model)
    inputs = [torch.empty(batch, *sizes, dtype=dtype, device="meta")
              for sizes, dtype in (samples if is_training else samples[:1])]
    report = poptorch.estimate(model, options, *inputs, optimizer=optimizer)
    seconds = report.seconds + report.host["call_seconds"]
    if "synthetic" not in row["task"]:
        seconds += report.host["stream_seconds"]
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
    """The model, and the sizes and types of the inputs of a sample; labels come last."""
    for name, build in NETWORKS.items():
        if row["model"].startswith(name):
            break
    else:
        raise NotBuilt(f"the network {row['model']} is not defined")
    found = re.search(r"\d+", row["seq_or_image"])
    if found is None:
        raise NotBuilt(f"the size {row['seq_or_image']!r} has no number")
    if "packed" in row["seq_or_image"]:
        raise NotBuilt("the packing is not stated")
    model, samples = build(row, int(found[0]))
    model.to(torch.float32 if row["dtype"] == "32.32" else torch.float16)
    return model.train("inference" not in row["task"]), samples


def _bert(row, length):
    hidden, heads, layers = (1024, 16, 24) if row["model"] == "BERT-Large" else (768, 12, 12)
    masked = MASKED[length] if "pretraining" in row["task"] else 0
    model = Bert(hidden, heads, _split(row, layers), length, masked)
    return model, [((length,), torch.int64), ((masked or 2,), torch.int64)]


def _gpt(row, length):
    if "flash" in row["task"]:
        raise NotBuilt("attention in parts is not built")
    return Gpt(384, 6, (6,), length), [((length,), torch.int64)] * 2


def _image(row, pixels):
    """Published programs of convolutional networks stream images of 8 bits."""
    half = torch.float16 if row["model"].startswith("ViT") else torch.uint8
    dtype = torch.float32 if row["dtype"] == "32.32" else half
    return [((3, pixels, pixels), dtype), ((), torch.int64)]


def _vit(row, pixels):
    stages = _number(row, "pipeline_stages")
    return Vit(768, 12, (12 // stages,) * stages, pixels), _image(row, pixels)


def _resnet(row, pixels):
    kept = (0, 2, 4, 7, 10, 13) if "inference" not in row["task"] else ()  # seven segments
    return ResNet((3, 4, 6, 3), kept=kept), _image(row, pixels)


def _resnext(row, pixels):
    """The second IPU begins with the fourth block of the third size."""
    return (ResNet((3, 4, 23, 3), groups=32, kept=range(0, 33, 2), cut=3 + 4 + 3),
            _image(row, pixels))


def _efficientnet(row, pixels):
    """The cut is not stated: both IPUs take about the same time."""
    return EfficientNetB4(cut=11), _image(row, pixels)


def _unet(row, pixels):
    out = pixels - 184
    return UNet(), [((1, pixels, pixels), torch.uint8), ((out, out), torch.int64)]


def _schnet(row, atoms):
    """Edges of an atom are not stated: with 28, as for water clusters, the published blocks alone
    would take longer than the published step of QM9."""
    count = atoms * (8 if "QM9" in row["task"] else 28)
    return SchNet(atoms), [((atoms,), torch.int64), ((atoms, 3), torch.float32),
                           ((2, count), torch.int64), ((), torch.float32)]


NETWORKS = {"BERT": _bert, "nanoGPT": _gpt, "ViT-B/16": _vit, "ResNet-50": _resnet,
            "ResNeXt-101": _resnext, "EfficientNet-B4": _efficientnet, "UNet": _unet,
            "SchNet": _schnet}


def _options(row):
    options = poptorch.Options().showCompilationProgressBar(False)
    options.target(TARGETS[row["ipu_generation"]])
    options.deviceIterations(_number(row, "device_iterations", 1))
    options.replicationFactor(_number(row, "replicas")).broadcastBuffers(False)
    options.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement))
    if "inference" not in row["task"]:
        options.Training.gradientAccumulation(_number(row, "grad_accum"))
    if row["dtype"] != "32.32":
        options.Precision.setPartialsType(torch.float16)
    options.setAvailableMemoryProportion(_proportions(row))
    location = poptorch.TensorLocationSettings()
    # All public programs of BERT-Large on 4 IPUs keep the optimizer's state off chip, in shards.
    is_large = row["model"] == "BERT-Large" and row["pipeline_stages"] == "4"
    if "off-chip" in row["notes"] or is_large:
        location.useOnChipStorage(False)
    if "RTS" in row["notes"] or "replicated tensor sharding" in row["notes"] or is_large:
        location.useReplicatedTensorSharding(True)
    options.TensorLocations.setOptimizerLocation(location)
    return options


def _proportions(row):
    """By IPU. A row that does not say it has that of the published program of its network."""
    is_training = "inference" not in row["task"]
    known = PROPORTIONS.get((row["model"], row["seq_or_image"] if is_training else ""), (0.6,))
    found = re.search(r"AMP (\d\.\d+)(?:/(\d\.\d+))?", row["notes"])
    if found:
        known = tuple(float(one) for one in found.groups() if one)
    return {f"IPU{ipu}": known[min(ipu, len(known) - 1)]
            for ipu in range(_number(row, "pipeline_stages", 1))}


def _optimizer(row, model):
    if row["model"].startswith("ResNe") or row["model"].startswith("Eff"):
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if row["dtype"] == "32.32":
        return torch.optim.Adam(model.parameters())
    half = torch.float16  # as in the published programs
    kind = poptorch.optim.LAMB if "pretraining" in row["task"] else poptorch.optim.AdamW
    return kind(model.parameters(), lr=0.1, accum_type=half,
                first_order_momentum_accum_type=half)


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

"""Ways to run a workload: one row a backend, each made into a function that does one call."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from benchmarks import exported, networks, torch_calls, workloads
from benchmarks.floor import Floor

OURS = "poptorch"
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}

# glibc then keeps freed memory instead of handing it back and faulting it in again.
KEPT_HEAP = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(10**11),
    "MALLOC_TOP_PAD_": str(256 * 2**20),
}


@dataclass
class Job:
    """A workload made ready: its module, and the inputs of one call."""

    workload: workloads.Workload
    mode: str
    module: nn.Module
    inputs: tuple
    learning_rate: float

    def optimizer(self, **arguments):
        """The workload's optimizer."""
        parameters = self.module.parameters()
        return workloads.make_optimizer(
            self.workload, parameters, learning_rate=self.learning_rate, **arguments
        )

    def parts(self):
        """The inputs cut into those of each step."""
        pieces = [x.split(self.workload.batch) for x in self.inputs]
        return list(zip(*pieces, strict=True))


@dataclass
class Run:
    """A backend ready to measure; ``prepare`` is the part of the first call that only compiles."""

    call: Callable[[], object]
    prepare: Callable[[], object] = lambda: None
    executor: object = None
    floor: object = None


def _poptorch(job):
    import poptorch  # here, so that the other backends' processes do not hold it

    options = poptorch.Options().showCompilationProgressBar(False)
    options.deviceIterations(job.workload.device_iterations)
    if job.mode == "train":
        model, inputs = poptorch.trainingModel(job.module, options, job.optimizer()), job.inputs
    else:
        model, inputs = poptorch.inferenceModel(job.module, options), job.inputs[:1]
    return Run(partial(model, *inputs), partial(model.compile, *inputs), executor=model)


def _floor(job):
    floor = Floor(job.module, job.parts()[0])
    return Run(floor.call, floor=floor)


def _tracer(job):
    from benchmarks.tracer import trace  # only here: it takes a second

    return Run(lambda: None, partial(trace, job))


def _torch(**tuning):
    return lambda job: Run(torch_calls.make(job, torch_calls.Tuning(**tuning)))


@dataclass(frozen=True)
class Backend:
    """A row: how it is made, and where it applies."""

    name: str
    make: Callable[[Job], Run]
    keeps_heap: bool = False
    is_peer: bool = False  # only measured when asked for: takes minutes to compile, or a package
    modes: tuple = ("train", "infer")
    only_images: bool = False
    autocasts: bool = False  # the module stays in float32, whatever the setting's format

    def suits(self, workload, mode):
        """Whether it can run the workload, and makes a difference there."""
        return mode in self.modes and (workload.has_images or not self.only_images)


BACKENDS = [
    Backend("eager", _torch()),
    Backend("eager tuned", _torch(fused=True), keeps_heap=True),
    Backend("eager nhwc", _torch(fused=True, nhwc=True), keeps_heap=True, only_images=True),
    Backend(OURS, _poptorch),
    Backend("floor", _floor, keeps_heap=True),
    Backend("compile", _torch(compiles=True), is_peer=True),
    Backend(
        "compile tuned",
        _torch(compiles=True, fused=True, nhwc=True),
        keeps_heap=True,
        is_peer=True,
        modes=("train",),
    ),
    Backend(
        "compile step",
        _torch(compiles=True, compiles_optimizer=True, nhwc=True),
        keeps_heap=True,
        is_peer=True,
        modes=("train",),
    ),
    Backend(
        "compile frozen",
        _torch(compiles=True, freezes=True, nhwc=True),
        keeps_heap=True,
        is_peer=True,
        modes=("infer",),
    ),
    Backend(
        "onnxruntime",
        lambda job: Run(exported.onnxruntime(job)),
        is_peer=True,
        modes=("infer",),
    ),
    Backend(
        "openvino", lambda job: Run(exported.openvino(job)), is_peer=True, modes=("infer",)
    ),
    # No peers in speed: forward and backward, without the step of the optimizer.
    Backend("eager graph", _torch(updates=False), modes=()),
    Backend("compile graph", _torch(compiles=True, updates=False), modes=()),
    Backend(
        "compile graph by poptorch",
        _torch(compiles=True, by_poptorch=True, updates=False),
        modes=(),
    ),
    # No peers in speed: what the first call, and what bfloat16, is compared with.
    Backend("tracer", _tracer, modes=()),
    Backend("autocast", _torch(autocasts=True), modes=(), autocasts=True),
    Backend(
        "compile autocast", _torch(compiles=True, autocasts=True), modes=(), autocasts=True
    ),
]


def find(name):
    """The backend of that name."""
    for backend in BACKENDS:
        if backend.name == name:
            return backend
    names = ", ".join(backend.name for backend in BACKENDS)
    raise SystemExit(f"[benchmarks] no backend {name!r}. There are: {names}.")


def suitable(workload, mode, with_peers):
    """Names of the backends that a table of the workload has."""
    rows = [b for b in BACKENDS if b.suits(workload, mode) and (with_peers or not b.is_peer)]
    return [backend.name for backend in rows]


def environment(setting):
    """Environment variables that the backend's process needs."""
    variables = {"POPTORCH_OFF": setting.off} if setting.off else {}
    return variables | (KEPT_HEAP if find(setting.backend).keeps_heap else {})


def make_job(setting):
    """The workload of a setting, in its number format."""
    torch.manual_seed(0)
    workload = workloads.find(setting.workload)
    dtype = DTYPES["f32" if find(setting.backend).autocasts else setting.dtype]
    if setting.learns:
        workload = workloads.smaller(workload)
    module = workload.network().train(setting.mode == "train").to(dtype)
    inputs = workload.inputs(workload.batch * workload.device_iterations)
    inputs = tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)
    learning_rate = workloads.LEARNING_RATE
    if setting.learns:
        learning_rate = workloads.TRUE_LEARNING_RATE[workload.optimizer]
        for layer in module.modules():
            if isinstance(layer, nn.Dropout):
                layer.p = 0.0
    if setting.nudge:
        module = networks.nudged(module, setting.nudge)
    return Job(workload, setting.mode, module, inputs, learning_rate)


def make_run(setting):
    """A setting made ready."""
    return find(setting.backend).make(make_job(setting))

"""Ways to run a workload. A backend gives a function that makes one call of some iterations."""

import torch

from benchmarks.workloads import make_optimizer

# glibc then keeps freed memory instead of handing it back and faulting it in again.
KEPT_HEAP = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(10**11),
    "MALLOC_TOP_PAD_": str(256 * 2**20),
}


def _eager_train(workload, module, inputs, fused):
    optimizer = make_optimizer(workload, module.parameters(), fused)
    parts = list(zip(*(x.split(workload.batch) for x in inputs), strict=True))

    def call():
        for part in parts:
            optimizer.zero_grad()
            module(*part)[1].backward()
            optimizer.step()

    return call


def _eager_infer(workload, module, inputs):
    parts = inputs[0].split(workload.batch)

    def call():
        with torch.inference_mode():
            for part in parts:
                module(part)

    return call


def _torch_call(workload, mode, module, inputs, fused, compiled):
    if compiled:
        module = torch.compile(module)
    if mode == "train":
        return _eager_train(workload, module, inputs, fused)
    return _eager_infer(workload, module, inputs)


def _poptorch_call(workload, mode, module, inputs):
    import poptorch  # here, so that the other backends' processes do not hold it

    options = poptorch.Options().showCompilationProgressBar(False)
    options.deviceIterations(workload.device_iterations)
    if mode == "train":
        optimizer = make_optimizer(workload, module.parameters())
        model = poptorch.trainingModel(module, options, optimizer)
        return lambda: model(*inputs)
    model = poptorch.inferenceModel(module, options)
    return lambda: model(inputs[0])


# name: (environment, fused optimizer, torch.compile); poptorch stands apart.
TORCH_BACKENDS = {
    "eager": ({}, None, False),
    "eager tuned": (KEPT_HEAP, True, False),
    "compile": ({}, None, True),
    "compile tuned": (KEPT_HEAP, True, True),
}
OURS = "poptorch"
USUAL = ["eager", "eager tuned", OURS]
PEERS = ["compile", "compile tuned"]


def environment(backend):
    """Environment variables that the backend's process needs."""
    return {} if backend == OURS else TORCH_BACKENDS[backend][0]


def make_call(backend, workload, mode):
    """A function that makes one call: ``device_iterations`` steps or inferences."""
    torch.manual_seed(0)
    module = workload.network().train(mode == "train")
    inputs = workload.inputs(workload.batch * workload.device_iterations)
    if backend == OURS:
        return _poptorch_call(workload, mode, module, inputs)
    _, fused, compiled = TORCH_BACKENDS[backend]
    return _torch_call(workload, mode, module, inputs, fused, compiled)

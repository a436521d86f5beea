"""PyTorch itself as a backend: eager or compiled, as installed or tuned."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Tuning:
    """What is changed from PyTorch as installed."""

    fused: bool | None = None  # optimizer
    nhwc: bool = False  # images and convolution weights with channels last
    compiles: bool = False
    by_poptorch: bool = False  # what compiles; else inductor
    updates: bool = True  # a step ends with that of the optimizer
    compiles_optimizer: bool = False
    freezes: bool = False  # weights become constants of the compiled program
    autocasts: bool = False  # products in bfloat16, the weights stay as they are


def _channels_last(inputs):
    images = {"memory_format": torch.channels_last}
    return tuple(x.to(**images) if x.dim() == 4 else x for x in inputs)


def _train(job, module, parts, tuning):
    optimizer = job.optimizer(fused=tuning.fused)
    step = torch.compile(optimizer.step) if tuning.compiles_optimizer else optimizer.step

    def call():
        for part in parts:
            optimizer.zero_grad()
            loss = module(*part)[1]
            loss.backward()
            if tuning.updates:
                step()
        return loss

    return call


def _infer(module, parts):
    def call():
        with torch.inference_mode():
            for part in parts:
                out = module(part[0])
        return out

    return call


def _autocast(module):
    def forward(*inputs):
        with torch.autocast("cpu", torch.bfloat16):
            return module(*inputs)

    return forward


def _compiler(tuning):
    if not tuning.by_poptorch:
        return {}
    import poptorch  # only here, so that the processes of the others do not hold it
    from poptorch._torch_compile.backend import backend

    torch._dynamo.config.allow_rnn = True
    return {"backend": backend,
            "options": poptorch.Options().showCompilationProgressBar(False)}


def make(job, tuning):
    """A function that makes one call, of as many steps as the workload has in one."""
    module, parts = job.module, job.parts()
    if tuning.nhwc and job.workload.has_images:
        module.to(memory_format=torch.channels_last)
        parts = [_channels_last(part) for part in parts]
    if tuning.freezes:
        import torch._inductor.config as inductor  # only here: it takes a second

        inductor.freezing = True
    if tuning.compiles:
        module = torch.compile(module, fullgraph=tuning.by_poptorch, **_compiler(tuning))
    if tuning.autocasts:
        module = _autocast(module)
    if job.mode == "train":
        return _train(job, module, parts, tuning)
    return _infer(module, parts)

"""Runs a network of the zoo in PyTorch eager and in poptorch, in the same words.

A *run* is a dictionary ``{"outputs": ..., "loss": ..., "state": ...}``: what each step returned,
and the parameters and buffers afterwards. The checks of ``tests.helpers`` compare runs.
"""

import copy
from dataclasses import replace

import torch
from torch.utils import _pytree as pytree

import poptorch
from benchmarks.networks import nudged
from tests.helpers import check_narrow, check_wide, flatten
from tests.networks.kinks import batches_away_from_kinks

STEPS = 5
NUDGES = 3


def clone(tree):
    """A structure of detached copies, so that later steps cannot change it."""
    return pytree.tree_map(lambda t: t.detach().clone() if torch.is_tensor(t) else t, tree)


def state_of(module):
    """Copies of all parameters and buffers, also the buffers that state_dict leaves out."""
    return clone({**dict(module.named_parameters()), **dict(module.named_buffers())})


def channels_last(tree):
    """The same values with 4-D tensors in channels-last memory."""

    def convert(leaf):
        if torch.is_tensor(leaf) and leaf.dim() == 4:
            return leaf.contiguous(memory_format=torch.channels_last)
        return leaf

    return pytree.tree_map(convert, tree)


def _training_copy(network, last):
    module = copy.deepcopy(network.module).train()
    return module.to(memory_format=torch.channels_last) if last else module


def train_eager(network, batches, last=False):
    """Trains a copy of the network's module step by step; returns the run."""
    module = _training_copy(network, last)
    optimizer = network.make_optimizer(list(module.parameters()))
    run = {"outputs": [], "loss": []}
    for inputs in batches:
        optimizer.zero_grad()
        out, loss = module(*(channels_last(inputs) if last else clone(inputs)))
        loss.backward()
        optimizer.step()
        run["outputs"].append(clone(out))
        run["loss"].append(clone(loss))
    return {**run, "state": state_of(module)}


def away_from_kinks(network, count, seed):
    """Inputs for training, in float32 and in float64, that the float32 rule can judge."""
    return batches_away_from_kinks(train_eager, network, count, seed)


def gradients_eager(network, inputs, last=False):
    """Outputs, loss and gradients of one eager step, as a run."""
    module = _training_copy(network, last)
    out, loss = module(*(channels_last(inputs) if last else clone(inputs)))
    loss.backward()
    gradients = {
        name: clone(p.grad) for name, p in module.named_parameters() if p.grad is not None
    }
    return {"outputs": clone(out), "loss": clone(loss), "gradients": gradients}


def infer_eager(network, batches, last=False):
    """Outputs of eager inference, and the state afterwards."""
    module = _training_copy(network, last).eval()
    with torch.no_grad():
        outputs = [
            clone(module(*(channels_last(inputs) if last else clone(inputs))))
            for inputs in batches
        ]
    return {"outputs": outputs, "state": state_of(module)}


def eager_variants(function, network, argument):
    """Eager float32 results with one and two threads, contiguous and channels-last, and from
    weights that are moved by a rounding."""
    has_images = any(tensor.dim() == 4 for tensor in flatten(argument).values())
    threads_before = torch.get_num_threads()
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for last in (False, True) if has_images else (False,):
            results.append(function(network, argument, last))
    torch.set_num_threads(threads_before)
    moved = (replace(network, module=nudged(network.module, seed)) for seed in range(NUDGES))
    return results + [function(each, argument) for each in moved]


def options_for(network, **settings):
    """Options of a test: no progress bar, and what the caller sets by method name."""
    options = poptorch.Options()
    options.showCompilationProgressBar(False)
    for name, value in settings.items():
        owners = (options, options.Training, options.TensorLocations)
        getattr(next(owner for owner in owners if hasattr(owner, name)), name)(value)
    return options


def train(network, batches, **settings):
    """Trains a copy of the network's module through poptorch; returns the run."""
    module = copy.deepcopy(network.module).train()
    optimizer = network.make_optimizer(list(module.parameters()))
    model = poptorch.trainingModel(module, options_for(network, **settings), optimizer)
    run = {"outputs": [], "loss": []}
    for inputs in batches:
        out, loss = model(*clone(inputs))
        run["outputs"].append(clone(out))
        run["loss"].append(clone(loss))
    model.copyWeightsToHost()
    run["state"] = state_of(module)
    model.destroy()
    return run


def gradients_after_one_step(network, inputs, **settings):
    """Outputs, loss and gradients of one poptorch step, as a run."""
    module = copy.deepcopy(network.module).train()
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
    with poptorch.testing.keep_gradients():
        model = poptorch.trainingModel(module, options_for(network, **settings), optimizer)
        out, loss = model(*clone(inputs))
    run = {"outputs": clone(out), "loss": clone(loss)}
    run["gradients"] = clone(poptorch.testing.gradients(model))
    model.destroy()
    return run


def infer(network, batches, **settings):
    """Outputs of poptorch inference, and the state afterwards."""
    module = copy.deepcopy(network.module).eval()
    model = poptorch.inferenceModel(module, options_for(network, **settings))
    outputs = [clone(model(*clone(inputs))) for inputs in batches]
    model.copyWeightsToHost()
    run = {"outputs": outputs, "state": state_of(module)}
    model.destroy()
    return run


def check_training_wide(network, seed, steps=STEPS, **settings):
    """The float64 rule: outputs, losses, and the state after some steps.

    With settings that cut a batch into parts, only the mean loss and the state are compared.
    """
    wide = network.to(torch.float64)
    batches = network.batches(steps, seed, torch.float64)
    with poptorch.testing.wide():
        ours = train(wide, batches, **settings)
    reference = train_eager(wide, batches)
    if settings:
        for run in (ours, reference):
            run["loss"] = [loss.mean() for loss in run["loss"]]
            del run["outputs"]
    check_wide(ours, reference)


def check_training_narrow(network, seed):
    """The float32 rule for the state after five steps."""
    data = away_from_kinks(network, STEPS, seed)
    _check_narrow(train, train_eager, network, data, ["state"])


def check_gradients_narrow(network, seed):
    """The float32 rule for outputs, loss and gradients of one step."""
    data = [steps[0] for steps in away_from_kinks(network, 1, seed)]
    parts = ["outputs", "loss", "gradients"]
    _check_narrow(gradients_after_one_step, gradients_eager, network, data, parts)


def check_inference_narrow(network, seed):
    """The float32 rule for the outputs of some inference calls and the buffers afterwards."""
    data = (network.batches(3, seed), network.batches(3, seed, torch.float64))
    _check_narrow(infer, infer_eager, network, data, ["outputs", "state"])


def _check_narrow(ours_of, eager_of, network, data, parts):
    narrow, wide = data

    def chosen(run):
        return {part: run[part] for part in parts}

    reference = eager_of(network.to(torch.float64), wide)
    eager32 = [chosen(run) for run in eager_variants(eager_of, network, narrow)]
    check_narrow(chosen(ours_of(network, narrow)), eager32, chosen(reference))


def concatenate(trees):
    """Joins equal structures along dim 0 of their tensors (0-d ones are stacked)."""

    def join(*leaves):
        if not torch.is_tensor(leaves[0]):
            return leaves[0]
        return torch.stack(leaves) if leaves[0].dim() == 0 else torch.cat(leaves)

    return pytree.tree_map(join, *trees)

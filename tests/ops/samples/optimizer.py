"""Samples of the optimizer family: one step of torch.optim is the reference."""

import torch

from tests.ops.sample import Bad, Sample, numbers, randn, scalar, uniform

# The update runs in the parameters' dtype and the hyper-parameters are not rounded to 16 bits.
SINGLE = ("f32", "f64")
SIZES = (37, 53)
LARGE = (50_000,)


def parameter(value, grad):
    """A parameter that has a gradient."""
    out = torch.nn.Parameter(value.clone())
    out.grad = grad.clone()
    return out


def sgd_step(**flags):
    """One step of torch.optim.SGD on the operands of `sgd_update`."""
    def reference(param, grad, buffer, step, hyper):
        lr, momentum, dampening, decay = hyper.tolist()
        weight = parameter(param, grad)
        optimizer = torch.optim.SGD([weight], lr=lr, momentum=momentum, dampening=dampening,
                                    weight_decay=decay, **flags)
        if buffer is not None and step > 1:
            optimizer.state[weight]["momentum_buffer"] = buffer.clone()
        optimizer.step()
        if buffer is None:
            return weight.detach()
        return weight.detach(), optimizer.state[weight]["momentum_buffer"]

    return reference


def sgd(hyper, step=2.0, buffer=True, sizes=SIZES, note="", **flags):
    return Sample("sgd_update", lambda: [randn(*sizes), randn(*sizes),
                                         randn(*sizes) if buffer else None, scalar(step),
                                         numbers(*hyper)],
                  flags, reference=sgd_step(**flags), dtypes=SINGLE,
                  note="-".join([*map(str, hyper), str(step), note]))


def adam_step(decoupled_weight_decay=False, amsgrad=False, maximize=False):
    """One step of torch.optim.Adam or AdamW on the operands of `adam_update`."""
    def reference(param, grad, average, square, largest, step, hyper):
        lr, beta1, beta2, eps, decay = hyper.tolist()
        weight = parameter(param, grad)
        make = torch.optim.AdamW if decoupled_weight_decay else torch.optim.Adam
        optimizer = make([weight], lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=decay,
                         amsgrad=amsgrad, maximize=maximize)
        state = {"step": step.clone() - 1, "exp_avg": average.clone(),
                 "exp_avg_sq": square.clone()}
        if amsgrad:
            state["max_exp_avg_sq"] = largest.clone()
        optimizer.state[weight] = state
        optimizer.step()
        names = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")
        return weight.detach(), *(state[name] for name in names if name in state)

    return reference


def adam(hyper, step=3.0, sizes=SIZES, note="", **flags):
    return Sample("adam_update", lambda: [
        randn(*sizes), randn(*sizes), randn(*sizes), uniform(0.0, 2.0, *sizes),
        uniform(0.0, 2.0, *sizes) if flags.get("amsgrad") else None, scalar(step),
        numbers(*hyper)], flags, reference=adam_step(**flags), dtypes=SINGLE,
        note="-".join([*map(str, hyper), str(step), note]))


USUAL = (1e-3, 0.9, 0.999, 1e-8, 0.0)
DECAY = (0.05, 0.8, 0.95, 1e-4, 0.1)

SAMPLES = [
    Sample("accumulate", lambda: [randn(*SIZES), randn(*SIZES)], reference=torch.add),
    Sample("accumulate", lambda: [randn(*LARGE), randn(*LARGE)], {"scale": 0.25},
           reference=lambda acc, grad: torch.add(acc, grad, alpha=0.25)),
    sgd((0.1, 0.0, 0.0, 0.0), buffer=False),
    sgd((0.1, 0.0, 0.0, 0.01), buffer=False, maximize=True),
    sgd((0.1, 0.9, 0.0, 0.0)), sgd((0.1, 0.9, 0.0, 0.0), step=1.0),
    sgd((0.1, 0.9, 0.2, 0.01)), sgd((0.1, 0.9, 0.2, 0.01), step=1.0),
    sgd((0.1, 0.9, 0.0, 0.01), nesterov=True), sgd((0.1, 0.9, 0.0, 0.0), step=1.0, nesterov=True),
    sgd((0.1, 0.9, 0.1, 0.01), maximize=True), sgd((0.1, 0.9, 0.0, 0.01), sizes=LARGE),
    sgd((0.1, 0.9, 0.0, 0.01), sizes=(0, 3), note="empty"),
    adam(USUAL), adam(USUAL, step=1.0), adam(USUAL, step=5000.0), adam(DECAY),
    adam(DECAY, decoupled_weight_decay=True), adam(DECAY, maximize=True),
    adam(DECAY, amsgrad=True), adam(DECAY, amsgrad=True, decoupled_weight_decay=True),
    adam(DECAY, sizes=LARGE), adam(DECAY, sizes=(), note="0d"),
]

BADS = [
    Bad("accumulate", lambda: [randn(3), randn(4)], words="operands differ"),
    Bad("sgd_update", lambda: [randn(3), randn(3), None, scalar(1.0), numbers(0.1, 0.9)],
        words="hyper must hold 4 numbers"),
    Bad("sgd_update", lambda: [randn(3), randn(3), None, scalar(1.0), numbers(0.1, 0, 0, 0),
                               numbers(0.5)], words="operand 5 must be one number of floating"),
    Bad("sgd_update", lambda: [randn(3), randn(3), None, scalar(1.0), numbers(0.1, 0, 0, 0),
                               None, scalar(1.0)], words="operand 6 must be one bool, got f32"),
    Bad("accumulate", lambda: [randn(3), randn(3).double()], words="or all f64"),
    Bad("sgd_update", lambda: [randn(3), randn(4), None, scalar(1.0), numbers(0.1, 0, 0, 0)],
        words="operands differ"),
    Bad("adam_update", lambda: [randn(3), randn(3), randn(3), randn(4), None, scalar(1.0),
                                numbers(*USUAL)], words="operands differ"),
    Bad("adam_update", lambda: [randn(3), randn(3), randn(3), randn(3), None, scalar(1.0),
                                numbers(*USUAL)], {"amsgrad": True},
        words="exactly with amsgrad=true"),
]

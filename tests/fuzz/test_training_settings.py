"""Random settings of training together: optimizer, types, loss scale, limits, accumulation,
replicas, rounding. The weights move as in a loop of PyTorch in float64, as far as the types allow:
a setting that counts twice, or not at all, moves them by another factor.
"""

import copy
import dataclasses

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import poptorch
from tests.fuzz.judge import budget
from tests.helpers import quiet_options

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
LR = 2.0**-5
STEPS = 3
ROWS = 4

# Name, settings, and whether signs of gradients decide: those near zero may have the other one.
OPTIMIZERS = [
    ("SGD", {}, False), ("SGD", {"momentum": 0.5}, False),
    ("SGD", {"momentum": 0.5, "nesterov": True, "weight_decay": 0.125}, False),
    ("Adam", {}, True), ("AdamW", {"weight_decay": 0.25}, True),
    ("RMSprop", {"momentum": 0.5}, True), ("LAMB", {"weight_decay": 0.125}, True),
    ("Adagrad", {}, True), ("NAdam", {}, True), ("Adamax", {}, True)]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, x, target):
        return nn.functional.mse_loss(self.layers(x), target)


@dataclasses.dataclass
class Setting:
    """What one training is drawn with."""

    seed: int
    dtype: torch.dtype
    optimizer: tuple
    is_ours: bool
    accumulation: int
    replicas: int
    iterations: int
    mean: bool
    loss_scale: float
    is_automatic: bool
    clip_norm: float | None
    clip_value: float | None
    sums: torch.dtype | None
    stochastic: bool
    float16_partials: bool
    deterministic: bool
    checks: bool

    def options(self):
        """The options of the executor."""
        options = quiet_options(deviceIterations=self.iterations, replicationFactor=self.replicas)
        options.deterministic(self.deterministic)
        training, precision = options.Training, options.Precision
        training.gradientAccumulation(self.accumulation)
        training.accumulationAndReplicationReductionType(
            poptorch.ReductionType.Mean if self.mean else poptorch.ReductionType.Sum)
        training.setAutomaticLossScaling(self.is_automatic)
        if self.clip_norm or self.clip_value:
            training.gradientClipping(norm=self.clip_norm, value=self.clip_value)
        precision.enableStochasticRounding(self.stochastic)
        precision.setPartialsType(torch.half if self.float16_partials else torch.float)
        precision.enableFloatingPointExceptions(self.checks)
        return options

    def make(self, net, on_device):
        """An optimizer of the module's parameters."""
        name, settings, _ = self.optimizer
        if not on_device or not self.is_ours:
            # PyTorch has no LAMB.
            package = torch.optim if hasattr(torch.optim, name) else poptorch.optim
            optimizer = getattr(package, name)(net.parameters(), lr=LR, **settings)
            if on_device:
                optimizer.param_groups[0]["loss_scaling"] = self.loss_scale
            return optimizer
        return getattr(poptorch.optim, name)(net.parameters(), lr=LR, accum_type=self.sums,
                                             loss_scaling=self.loss_scale, **settings)


@st.composite
def _settings(draw):
    dtype = draw(st.sampled_from(DTYPES))
    # Squares of gradients are no numbers for 16 bits, which states of torch.optim have then.
    has_ours = [row for row in OPTIMIZERS if hasattr(poptorch.optim, row[0])]
    optimizer = draw(st.sampled_from(OPTIMIZERS if dtype is torch.float32 else has_ours))
    is_wide = dtype is not torch.float32 and optimizer[2]
    clipped = draw(st.sampled_from([(None, None), (None, None), (0.25, None), (None, 0.0625),
                                    (0.5, 0.25)]))
    return Setting(
        draw(st.integers(0, 2**31)), dtype, optimizer,
        optimizer in has_ours and (is_wide or draw(st.booleans())),
        draw(st.sampled_from([1, 2, 3])), draw(st.sampled_from([1, 2])),
        draw(st.sampled_from([1, 2])), draw(st.booleans()),
        draw(st.sampled_from([1.0, 1.0, 64.0, 0.5])), draw(st.booleans()), *clipped,
        draw(st.sampled_from([None, torch.float32, dtype])), draw(st.booleans()),
        dtype is torch.float16 and draw(st.booleans()), draw(st.booleans()), draw(st.booleans()))


def looped(net, optimizer, batches, setting):
    """Weights after updates of gradients that are combined and limited as documented."""
    count = setting.accumulation * setting.replicas
    for x, target in batches:
        optimizer.zero_grad()
        losses = [net(*part) for part in zip(x.chunk(count), target.chunk(count))]
        (sum(losses) / (count if setting.mean else 1)).backward()
        if setting.clip_norm:
            nn.utils.clip_grad_norm_(net.parameters(), setting.clip_norm)
        if setting.clip_value:
            nn.utils.clip_grad_value_(net.parameters(), setting.clip_value)
        optimizer.step()
    return [p.detach() for p in net.parameters()]


def trained(net, setting, batches):
    """Weights after the same updates on the device."""
    model = poptorch.trainingModel(net, setting.options(), setting.make(net, True))
    for i in range(0, len(batches), setting.iterations):
        model(*(torch.cat(parts).to(setting.dtype)
                for parts in zip(*batches[i:i + setting.iterations])))
    found = [p.detach().double() for p in model.parameters()]
    model.destroy()
    return found


@budget(16)
@given(_settings())
def test_settings_together(setting):
    torch.manual_seed(setting.seed)
    net = Net().to(setting.dtype)
    begun = [p.detach().double() for p in net.parameters()]
    size = ROWS * setting.accumulation * setting.replicas
    batches = [(torch.randn(size, 4).to(setting.dtype), torch.randn(size, 3).to(setting.dtype))
               for _ in range(STEPS * setting.iterations)]
    wide = copy.deepcopy(net).double()
    expected = looped(wide, setting.make(wide, False),
                      [tuple(t.double() for t in batch) for batch in batches], setting)
    found = trained(net, setting, batches)
    step = torch.finfo(setting.dtype).eps
    share = 0.002 if setting.dtype is torch.float32 else 0.1
    if setting.optimizer[2]:
        share *= 6
        # One wrong sign is much of a bias with three elements, and little of all weights.
        found, expected, begun = ([torch.cat([one.flatten() for one in side])]
                                  for side in (found, expected, begun))
    for ours, theirs, first in zip(found, expected, begun):
        moved, error = (theirs - first).norm(), (ours - theirs).norm()
        limit = share * moved + 2 * STEPS * setting.iterations * step * theirs.norm()
        assert error <= limit, f"{error:.3g} off, {limit:.3g} allowed, moved {moved:.3g}"

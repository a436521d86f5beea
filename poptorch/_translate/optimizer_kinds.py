"""The kinds of weight update: how each op reads torch's parameter groups, and what the tensors of
an update are called outside.

Names, for a parameter ``fc.weight``:

    Accl1___fc.weight                              a state: momentum, or the first moment
    Accl2___fc.weight, MaxAccl2___fc.weight        the second moment of Adam, its maximum
    Step___fc.weight                               updates so far, where there are other states
    scaledLearningRate0___specific___fc.weight     a setting of the update
    lossScaling_FLOAT                              one that all parameters share
"""

import math
from dataclasses import dataclass

import torch

from poptorch.errors import Error

LOSS_SCALING = "lossScaling_FLOAT"
STEP = "Step"


@dataclass(frozen=True)
class Setting:
    """A number that an update uses, as it is shown outside.

    Attributes:
        name: without the parameter's.
        keys: the hyper-parameters of which it is the product.
        is_complement: it is 1 minus that.
    """

    name: str
    keys: tuple[str, ...]
    is_complement: bool = False

    def value(self, kind: "Kind", hyper: list[float]) -> float:
        """The number itself, for a hyper-parameter vector of the kind."""
        product = math.prod(hyper[kind.hyper.index(key)] for key in self.keys)
        return 1.0 - product if self.is_complement else product

    def of(self, parameter: str) -> str:
        """The name of the setting of one parameter."""
        return f"{self.name}___specific___{parameter}"


@dataclass(frozen=True)
class Kind:
    """One kind of update: an op, and how it reads torch's parameter groups.

    Attributes:
        op: name of the op row.
        hyper: group keys in the order of the op's hyper-parameter vector; ``betas.0`` is the
            first item of ``betas``.
        flags: group keys that are attributes of the op, compiled in.
        states: operands that are states like the parameter, which torch's optimizer calls the same,
            and their names outside.
        settings: the numbers that are shown outside.
    """

    op: str
    hyper: tuple[str, ...]
    flags: tuple[str, ...]
    states: dict[str, str]
    settings: tuple[Setting, ...]


_SGD = Kind("sgd_update", ("lr", "momentum", "dampening", "weight_decay"),
            ("nesterov", "maximize"), {"momentum_buffer": "Accl1"},
            (Setting("scaledLearningRate0", ("lr",)),
             Setting("weightDecayScaleFactor0", ("lr", "weight_decay"), is_complement=True),
             Setting("scaledMomentum0", ("momentum",)),
             Setting("dampeningScaleFactor0", ("dampening",), is_complement=True)))
_ADAM = Kind("adam_update", ("lr", "betas.0", "betas.1", "eps", "weight_decay"),
             ("amsgrad", "maximize", "decoupled_weight_decay"),
             {"exp_avg": "Accl1", "exp_avg_sq": "Accl2", "max_exp_avg_sq": "MaxAccl2"},
             (Setting("learningRate", ("lr",)), Setting("weightDecay", ("weight_decay",)),
              Setting("beta1", ("betas.0",)), Setting("beta2", ("betas.1",)),
              Setting("eps", ("eps",))))

# Most derived class first: torch's AdamW is an Adam.
KINDS = ((torch.optim.AdamW, _ADAM), (torch.optim.Adam, _ADAM), (torch.optim.SGD, _SGD))


def kind_of(optimizer: torch.optim.Optimizer) -> tuple[type, Kind]:
    """The class of the table that the optimizer belongs to, and its kind.

    Raises:
        poptorch.Error: It belongs to none; the message lists those that can be used.
    """
    for cls, kind in KINDS:
        if isinstance(optimizer, cls):
            return cls, kind
    raise Error(f"[optimizer] {type(optimizer).__name__} has no update op on the device. Use one "
                f"of: {', '.join(cls.__name__ for cls, _ in reversed(KINDS))} (of poptorch.optim "
                f"or torch.optim).")


def hyper_values(kind: Kind, group: dict) -> list[float]:
    """The hyper-parameter vector of one group, as the op wants it."""
    values = []
    for key in kind.hyper:
        name, _, index = key.partition(".")
        value = group[name][int(index)] if index else group[name]
        values.append(float(value))
    return values


def flag_values(kind: Kind, group: dict) -> tuple:
    """The compiled-in settings of one group."""
    return tuple(bool(group.get(key)) for key in kind.flags) + (has_momentum(kind, group),)


def has_momentum(kind: Kind, group: dict) -> bool:
    """Whether a group of SGD has momentum buffers."""
    return kind is _SGD and group["momentum"] != 0


def state_name(name: str, parameter: str) -> str:
    """The name outside of a parameter's state."""
    return f"{name}___{parameter}"

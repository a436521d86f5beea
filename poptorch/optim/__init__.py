"""Optimisers: those of torch with the device's extra settings."""

from poptorch.optim._optimizers import SGD as SGD
from poptorch.optim._optimizers import Adam as Adam
from poptorch.optim._optimizers import AdamW as AdamW
from poptorch.optim._optimizers import Optimizer as Optimizer

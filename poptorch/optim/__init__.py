"""Optimizers: those of torch with the device's extra settings."""

from poptorch.optim._adaptive import LAMB as LAMB
from poptorch.optim._adaptive import RMSprop as RMSprop
from poptorch.optim._map_gradients import MapGradients as MapGradients
from poptorch.optim._optimizer import Optimizer as Optimizer
from poptorch.optim._optimizers import SGD as SGD
from poptorch.optim._optimizers import Adam as Adam
from poptorch.optim._optimizers import AdamW as AdamW
from poptorch.optim._variable_attributes import VariableAttributes as VariableAttributes

"""Options: how a model is compiled and run."""

from poptorch.options._options import Options as Options
from poptorch.options._training import _TrainingOptions as _TrainingOptions

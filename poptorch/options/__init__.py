"""Options: how a model is compiled and run."""

from poptorch._annotations.strategy_rows import _IExecutionStrategy as _IExecutionStrategy
from poptorch.options._config_file import ConfigFileError as ConfigFileError
from poptorch.options._distributed import _DistributedOptions as _DistributedOptions
from poptorch.options._jit import _JitOptions as _JitOptions
from poptorch.options._options import Options as Options
from poptorch.options._popart import _PopartOptions as _PopartOptions
from poptorch.options._precision import _PrecisionOptions as _PrecisionOptions
from poptorch.options._tensor_locations import TensorLocationSettings as TensorLocationSettings
from poptorch.options._tensor_locations import _TensorLocationOptions as _TensorLocationOptions
from poptorch.options._training import _TrainingOptions as _TrainingOptions

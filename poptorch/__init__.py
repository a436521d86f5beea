"""PyTorch models on a Graphcore-style IPU system, without one: the PopTorch API, current PyTorch.

The data path is capture -> translate -> rewrite -> place -> schedule -> plan -> assemble -> run.
"""

import warnings as _warnings

import torch as _torch

from poptorch import optim as optim
from poptorch import options as options
from poptorch import testing as testing
from poptorch._logging import logger as logger
from poptorch._logging import setLogLevel as setLogLevel
from poptorch._loss import identity_loss as identity_loss
from poptorch._runtime import isRunningOnIpu as isRunningOnIpu
from poptorch.blocks import BeginBlock as BeginBlock
from poptorch.blocks import Block as Block
from poptorch.blocks import BlockFunction as BlockFunction
from poptorch.blocks import removeBlocks as removeBlocks
from poptorch.data import DataLoader as DataLoader
from poptorch.enums import DataLoaderMode as DataLoaderMode
from poptorch.enums import OutputMode as OutputMode
from poptorch.enums import ReductionType as ReductionType
from poptorch.errors import Error as Error
from poptorch.errors import RecoverableError as RecoverableError
from poptorch.errors import UnrecoverableError as UnrecoverableError
from poptorch.executor import PoplarExecutor as PoplarExecutor
from poptorch.models import inferenceModel as inferenceModel
from poptorch.models import trainingModel as trainingModel
from poptorch.options import Options as Options
from poptorch.version import __version__ as __version__

if not _torch.__version__.startswith("2.13."):
    _warnings.warn(f"poptorch is made for torch 2.13; this is torch {_torch.__version__}. Capture "
                   f"uses torch's internals, so another version may fail.", stacklevel=2)

"""PyTorch models on a Graphcore-style IPU system, without one: the PopTorch API, current PyTorch.

The data path is capture -> translate -> rewrite -> place -> lower -> schedule -> plan -> assemble
-> run.
"""

import warnings as _warnings

import torch as _torch

# First: it says what to do where the extension is missing.
from poptorch._base import extension_check as _extension_check  # noqa: F401 isort: skip

from poptorch import _impl as _impl
from poptorch import _poplar_executor as _poplar_executor
from poptorch import _utils as _utils
from poptorch import enums as enums
from poptorch import optim as optim
from poptorch import options as options
from poptorch import poptorch_core as poptorch_core
from poptorch import profiling as profiling
from poptorch import testing as testing
from poptorch._annotations.stages import Phase as Phase
from poptorch._annotations.stages import Stage as Stage
from poptorch._args_parser import ArgsParser as _ArgsParser  # noqa: F401
from poptorch._base.logging import logger as logger
from poptorch._base.logging import setLogLevel as setLogLevel
from poptorch._estimate.analyze import analyze as analyze
from poptorch._estimate.estimate import estimate as estimate
from poptorch._estimate.fit import Fit as Fit
from poptorch._estimate.fit import fit as fit
from poptorch._reports.analysis import Analysis as Analysis
from poptorch._reports.device.report import DeviceReport as DeviceReport
from poptorch._runtime.hooks import registerPostCompileHook as registerPostCompileHook
from poptorch._runtime.hooks import registerPreCompileHook as registerPreCompileHook
from poptorch._torch_compile.compile import compile as compile
from poptorch._weights.precision import convert_precision as convert_precision
from poptorch.blocks import Attribute as Attribute
from poptorch.blocks import BeginBlock as BeginBlock
from poptorch.blocks import Block as Block
from poptorch.blocks import BlockFunction as BlockFunction
from poptorch.blocks import NameScope as NameScope
from poptorch.blocks import module_repr as module_repr
from poptorch.blocks import removeBlocks as removeBlocks
from poptorch.files import load_bundle as load_bundle
from poptorch.files import load_weights as load_weights
from poptorch.files import save_bundle as save_bundle
from poptorch.files import save_weights as save_weights
from poptorch.custom_args import ICustomArgParser as ICustomArgParser
from poptorch.custom_args import registerCustomArgParser as registerCustomArgParser
from poptorch.data import AsynchronousDataAccessor as AsynchronousDataAccessor
from poptorch.data import DataLoader as DataLoader
from poptorch.enums import AutoStage as AutoStage
from poptorch.enums import CommGroupType as CommGroupType
from poptorch.enums import ConnectionType as ConnectionType
from poptorch.enums import DataLoaderMode as DataLoaderMode
from poptorch.enums import HalfFloatCastingBehavior as HalfFloatCastingBehavior
from poptorch.enums import Liveness as Liveness
from poptorch.enums import MatMulSerializationMode as MatMulSerializationMode
from poptorch.enums import MeanReductionStrategy as MeanReductionStrategy
from poptorch.enums import MultiConvPlanType as MultiConvPlanType
from poptorch.enums import OutputMode as AnchorMode  # as releases of 2020 call it
from poptorch.enums import OutputMode as OutputMode
from poptorch.enums import OverlapMode as OverlapMode
from poptorch.enums import PipelineSchedule as PipelineSchedule
from poptorch.enums import Recomputation as Recomputation
from poptorch.enums import ReductionType as ReductionType
from poptorch.enums import SharingStrategy as SharingStrategy
from poptorch.enums import SyncPattern as SyncPattern
from poptorch.enums import VariableRetrievalMode as VariableRetrievalMode
from poptorch.errors import Error as Error
from poptorch.errors import RecoverableError as RecoverableError
from poptorch.errors import UnrecoverableError as UnrecoverableError
from poptorch.executor import PoplarExecutor as PoplarExecutor
from poptorch.models import inferenceModel as inferenceModel
from poptorch.models import load as load
from poptorch.models import trainingModel as trainingModel
from poptorch.ops import CPU as CPU
from poptorch.ops import cond as cond
from poptorch.ops import ctc_beam_search_decoder as ctc_beam_search_decoder
from poptorch.ops import dynamic_slice as dynamic_slice
from poptorch.ops import dynamic_update as dynamic_update
from poptorch.ops import for_loop as for_loop
from poptorch.ops import fps as fps
from poptorch.ops import ipu_print_tensor as ipu_print_tensor
from poptorch.ops import nearest as nearest
from poptorch.ops import scope_ops as _scope_ops
from poptorch.ops.custom_op import custom_op as custom_op
from poptorch.ops.custom_op import include_path as include_path
from poptorch.ops.hardware_queries import devices as devices
from poptorch.ops.hardware_queries import ipuHardwareIsAvailable as ipuHardwareIsAvailable
from poptorch.ops.hardware_queries import ipuHardwareVersion as ipuHardwareVersion
from poptorch.ops.hardware_queries import isCompilingWithDispatcher as isCompilingWithDispatcher
from poptorch.ops.hardware_queries import isRunningOnIpu as isRunningOnIpu
from poptorch.ops.loss import identity_loss as identity_loss
from poptorch.ops.multi_conv import MultiConv as MultiConv
from poptorch.ops.serialized_matmul import SerializedLinear as SerializedLinear
from poptorch.ops.serialized_matmul import serializedMatMul as serializedMatMul
from poptorch.ops.stream_overlap import set_overlap_for_input as set_overlap_for_input
from poptorch.ops.stream_overlap import set_overlap_for_output as set_overlap_for_output
from poptorch.ops.tensor_hints import nop as nop
from poptorch.ops.tensor_hints import recomputationCheckpoint as recomputationCheckpoint
from poptorch.ops.tensor_hints import set_available_memory as set_available_memory
from poptorch.options import Options as Options
from poptorch.options import TensorLocationSettings as TensorLocationSettings
from poptorch.strategies import ParallelPhasedExecution as ParallelPhasedExecution
from poptorch.strategies import PipelinedExecution as PipelinedExecution
from poptorch.strategies import SerialPhasedExecution as SerialPhasedExecution
from poptorch.strategies import ShardedExecution as ShardedExecution
from poptorch.version import __version__ as __version__

if _extension_check.RELEASE not in _extension_check.SUPPORTED:
    _warnings.warn(
        f"poptorch supports torch {_extension_check.listed(_extension_check.SUPPORTED)}; this is "
        f"torch {_torch.__version__}. Capture uses torch's internals, so another version may fail.",
        stacklevel=2)

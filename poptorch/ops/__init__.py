"""Functions of PopTorch's own that compute something, on the device and outside of poptorch."""

from poptorch.ops.decoding import ctc_beam_search_decoder as ctc_beam_search_decoder
from poptorch.ops.dynamic import dynamic_slice as dynamic_slice
from poptorch.ops.dynamic import dynamic_update as dynamic_update
from poptorch.ops.host import CPU as CPU
from poptorch.ops.loops import cond as cond
from poptorch.ops.loops import for_loop as for_loop
from poptorch.ops.points import fps as fps
from poptorch.ops.points import nearest as nearest
from poptorch.ops.printing import ipu_print_tensor as ipu_print_tensor

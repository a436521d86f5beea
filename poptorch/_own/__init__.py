"""Functions of PopTorch's own that compute something, on the device and outside of poptorch."""

from poptorch._own.decoding import ctc_beam_search_decoder as ctc_beam_search_decoder
from poptorch._own.dynamic import dynamic_slice as dynamic_slice
from poptorch._own.dynamic import dynamic_update as dynamic_update
from poptorch._own.host import CPU as CPU
from poptorch._own.loops import cond as cond
from poptorch._own.loops import for_loop as for_loop
from poptorch._own.points import fps as fps
from poptorch._own.points import nearest as nearest
from poptorch._own.printing import ipu_print_tensor as ipu_print_tensor

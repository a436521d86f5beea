"""What a capture must not change in the process, kept and put back."""

import contextlib
import logging
import os
import threading

import torch

from poptorch._base.torch_private.tracing import causal_masks_unread, padding_as_nested
from poptorch._capture.functions.fused_layers import fused_results_in_rows

# Random numbers drawn while capturing identify the random operations, so they must not depend on
# earlier draws. The seed is large, because forward may seed its own generator with a small number,
# which would then draw the same numbers for other operations.
_SEED = 0x6A09E667F3BCC908


# The generator and some settings belong to the whole process: one capture, and one change of what
# an executor runs, at a time.
one_at_a_time = threading.RLock()


def _begin_anew() -> None:
    # A thread that does not exist in the child process may hold it.
    if not one_at_a_time._is_owned():
        one_at_a_time._at_fork_reinit()


os.register_at_fork(after_in_child=_begin_anew)


@contextlib.contextmanager
def preserved(training: bool):
    """The state in which ``forward`` is captured; afterwards everything is as it was.

    Grad mode is that of the capture, inference mode is off, the generator starts again. Autocast
    and the default dtype are the caller's. Transformers do not compare their masks with the causal
    one, and leave out padding by a mask of their results, which lie as those of fused operations
    do.
    """
    with one_at_a_time, causal_masks_unread(), padding_as_nested(), fused_results_in_rows(), \
            _preserved(training):
        yield


@contextlib.contextmanager
def _preserved(training: bool):
    generator = torch.default_generator.get_state()
    dtype = torch.get_default_dtype()
    # Errors of forward reach the caller; torch would print them first.
    torch_log = logging.getLogger("torch._subclasses.fake_tensor")
    try:
        torch_log.addFilter(_silent)
        torch.default_generator.manual_seed(_SEED)
        # There are no values that a check for NaN could read.
        with torch.inference_mode(False), torch.set_grad_enabled(training), \
                torch.autograd.set_detect_anomaly(torch.is_anomaly_enabled(), check_nan=False):
            yield
    finally:
        torch.default_generator.set_state(generator)
        torch.set_default_dtype(dtype)
        torch_log.removeFilter(_silent)


def _silent(record) -> bool:
    return False

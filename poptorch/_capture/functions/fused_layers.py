"""Layers that eager may compute by one fused operation: attention, and encoders' layers.

Capture records the operations that they consist of, whose results may lie otherwise in memory than
those of the fused ones, which are row-major.
"""

import contextlib
import threading
from functools import partial, wraps
from unittest import mock

import torch
from torch import nn


class _Fused(Exception):
    """Eager calls the fused operation."""


@contextlib.contextmanager
def fused_results_in_rows():
    """Results lie as those of the fused operations do, where eager calls these."""
    with contextlib.ExitStack() as stack:
        for name in ("_native_multi_head_attention", "_transformer_encoder_layer_fwd"):
            fused = partial(_fused, getattr(torch, name), threading.get_ident())
            stack.enter_context(mock.patch.object(torch, name, fused))
        for layer in (nn.MultiheadAttention, nn.TransformerEncoderLayer):
            stack.enter_context(mock.patch.object(layer, "forward", _in_rows(layer.forward)))
        yield


def _fused(operation, capturing_thread, *args, **kwargs):
    if threading.get_ident() != capturing_thread:  # which runs in eager
        return operation(*args, **kwargs)
    raise _Fused


def _in_rows(forward):
    @wraps(forward)
    def in_rows(self, *args, **kwargs):
        try:
            with _recording_is_no_override_for(self):
                return forward(self, *args, **kwargs)
        except _Fused:
            pass
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            out = forward(self, *args, **kwargs)
        finally:
            torch.backends.mha.set_fastpath_enabled(True)
        return (out[0].contiguous(), *out[1:]) if isinstance(out, tuple) else out.contiguous()

    return in_rows


@contextlib.contextmanager
def _recording_is_no_override_for(layer):
    """Modes that record operations count as overrides, with which eager fuses nothing."""
    asked = torch.overrides.has_torch_function
    weight = getattr(layer, "self_attn", layer).out_proj.weight

    def has_torch_function(args):
        return not any(one is weight for one in args) and asked(args)

    with mock.patch.object(torch.overrides, "has_torch_function", has_torch_function):
        yield

"""The operation of namespace ``poptorch`` that decodes sequences."""

import torch

from poptorch._capture.library.layers import define


def _decoded(probs, lengths, blank, beam_width, top_paths):
    time, batch, _ = probs.shape
    return (probs.new_empty(batch, top_paths),
            probs.new_empty(batch, top_paths, dtype=torch.int32),
            probs.new_empty(batch, top_paths, time, dtype=torch.int32))


define("ctc_beam_search_decoder(Tensor probs, Tensor lengths, int blank, int beam_width, "
       "int top_paths) -> (Tensor, Tensor, Tensor)", _decoded)

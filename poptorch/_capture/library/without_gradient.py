"""The operations of namespace ``poptorch`` that have no gradient and no code but their declaration.
"""

import torch

from poptorch._capture.library.layers import define, empty_copy


def _decoded(probs, lengths, blank, beam_width, top_paths):
    time, batch, _ = probs.shape
    return (probs.new_empty(batch, top_paths),
            probs.new_empty(batch, top_paths, dtype=torch.int32),
            probs.new_empty(batch, top_paths, time, dtype=torch.int32))


define("bincount(Tensor self, Tensor? weights, int minlength) -> Tensor",
       lambda self, weights, minlength:
       (self if weights is None else weights).new_empty(minlength))

# Stands behind what poptorch.recomputationCheckpoint marks. Nothing uses its result; translate
# takes its operand for what is kept for the backward pass.
define("checkpoint(Tensor x) -> Tensor", lambda x: x.new_empty(0))

define("ctc_beam_search_decoder(Tensor probs, Tensor lengths, int blank, int beam_width, "
       "int top_paths) -> (Tensor, Tensor, Tensor)", _decoded)

# What `as_strided` and the like become: it names places in memory, which a graph of values does not
# have. These name the same elements by their positions in a tensor of one dimension.
define("elements(Tensor x, int[] size, int[] stride, int offset) -> Tensor",
       lambda x, size, stride, offset: x.new_empty(size))
define("elements_scatter(Tensor x, Tensor src, int[] size, int[] stride, int offset) -> Tensor",
       lambda x, src, size, stride, offset: x.new_empty(x.shape))

define("nearest(Tensor x, Tensor y, Tensor? batch_x, Tensor? batch_y) -> Tensor",
       lambda x, y, batch_x, batch_y: x.new_empty(x.shape[0], dtype=torch.int64))
define("fps(Tensor src, Tensor? starts, int[] ptr, int[] counts) -> Tensor",
       lambda src, starts, ptr, counts: src.new_empty(sum(counts), dtype=torch.int64))

define("print_tensor(Tensor x, str title, int summarise_threshold, int edge_items, "
       "int max_line_width, int digits, str float_format, str separator, str open_bracket, "
       "str close_bracket) -> Tensor", lambda x, *format: empty_copy(x))

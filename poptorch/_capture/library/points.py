"""The operations of namespace ``poptorch`` that search among points in space."""

import torch

from poptorch._capture.library.layers import define

define("nearest(Tensor x, Tensor y, Tensor? batch_x, Tensor? batch_y) -> Tensor",
       lambda x, y, batch_x, batch_y: x.new_empty(x.shape[0], dtype=torch.int64))
define("fps(Tensor src, Tensor? starts, int[] ptr, int[] counts) -> Tensor",
       lambda src, starts, ptr, counts: src.new_empty(sum(counts), dtype=torch.int64))

"""The operation of namespace ``poptorch`` for values that a program checks when it runs."""

import torch

from poptorch._capture.decompose.functional_ops import ORIGINALS
from poptorch._capture.library.layers import define, empty_copy, ops

# Torch's rule for tensors without data gives `values` themselves, and so no operation.
define("checked(Tensor condition, str words, Tensor values) -> Tensor",
       lambda condition, words, values: empty_copy(values))
ORIGINALS[ops.checked.default] = torch.ops.aten._functional_assert_async.msg


def checked(values: torch.Tensor, condition: torch.Tensor, words: str) -> torch.Tensor:
    """``values``, which have no gradient; the program raises ``words`` where ``condition`` is
    false."""
    return ops.checked(condition, words, values)

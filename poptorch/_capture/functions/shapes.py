"""Changes of a tensor's shape in place, where autograd sees them.

Where a tensor has changed, autograd differentiates its views again. It makes them again of the
tensor by the operations that they were made by, which do not fit another shape. So the tensor
becomes a view of its old value, which keeps its shape and its views.
"""

import torch

from poptorch._base.torch_private import fake_tensors

_OF_VIEWS = {
    torch.Tensor.squeeze_: torch.Tensor.squeeze,
    torch.Tensor.swapaxes_: torch.Tensor.swapaxes,
    torch.Tensor.swapdims_: torch.Tensor.swapdims,
    torch.Tensor.t_: torch.Tensor.t,
    torch.Tensor.transpose_: torch.Tensor.transpose,
    torch.Tensor.unsqueeze_: torch.Tensor.unsqueeze,
}


def _change(capture, func, /, *args, **kwargs):
    recorder, tensor = capture.recorder, args[0]
    is_refused = tensor.is_leaf and tensor.requires_grad  # by autograd
    if not torch.is_grad_enabled() or is_refused or not fake_tensors.is_fake(tensor) \
            or recorder.node_of(tensor).op == "placeholder":
        return NotImplemented
    recorder.shapes.check(tensor, func)
    recorder.shapes.exchange(tensor, _OF_VIEWS[func](*args, **kwargs))
    return tensor


HANDLERS = dict.fromkeys(_OF_VIEWS, _change)

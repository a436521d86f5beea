"""Gradients of the weights of channels-last convolutions by loops of our own."""

import pytest
import torch

from poptorch import _C
from tests import helpers

# Images, channels, outputs, height and width, and what of the geometry is not as in `gradients`.
CASES = [
    (2, 32, 8, (9, 7), {}),  # one panel
    (1, 64, 70, (33, 41), {}),  # strips within an image, and groups of rows
    (9, 40, 5, (7, 7), {}),  # strips over several images; a panel of one vector
    (3, 96, 24, (5, 300), {}),  # lines longer than a strip
    (4, 48, 50, (12, 10), {"stride": [2, 2]}),
    (2, 32, 33, (17, 13), {"stride": [3, 1], "padding": [0, 2]}),
    (3, 32, 16, (14, 15), {"dilation": [2, 3], "padding": [2, 3]}),
    (2, 64, 12, (4, 4), {"padding": [3, 5]}),  # more padding than image
    (2, 32, 7, (40, 1), {"kernel": [3, 1], "padding": [1, 0]}),
    (2, 36, 9, (6, 19), {"kernel": [1, 5], "padding": [0, 4]}),
    # with few channels
    (9, 1, 48, (7, 7), {}),
    (5, 2, 16, (21, 30), {"kernel": [5, 7], "stride": [2, 1], "padding": [2, 4]}),
    (1, 1, 80, (3, 301), {"kernel": [1, 1], "stride": [2, 2], "padding": [1, 0]}),
    (3, 2, 32, (4, 4), {"padding": [5, 3]}),
    (2, 3, 48, (19, 23), {"kernel": [7, 7], "stride": [2, 2], "padding": [3, 3]}),
    (5, 4, 16, (11, 6), {}),
]


class Case:
    """Operands of a convolution and of its gradient, and PyTorch's gradient of the weight."""

    def __init__(self, images, channels, outputs, sizes, others):
        geometry = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "transposed": False,
                    "output_padding": [0, 0], "groups": 1}
        kernel = others.get("kernel", [3, 3])
        geometry |= {key: value for key, value in others.items() if key != "kernel"}
        self.attrs = {"bias_sizes": [outputs], **geometry, "output_mask": [False, True, False]}
        self.x = torch.randn(images, channels, *sizes)
        self.w = torch.randn(outputs, channels, *kernel)
        y = torch.ops.aten.convolution(self.x, self.w, None, *geometry.values())
        self.g = torch.randn(y.shape)
        self.geometry = geometry

    def torch(self, dtype):
        tensors = [t.to(dtype) for t in (self.g, self.x, self.w)]
        bias_sizes, mask = self.attrs["bias_sizes"], self.attrs["output_mask"]
        gradients = torch.ops.aten.convolution_backward(
            *tensors, bias_sizes, *self.geometry.values(), mask)
        return gradients[1]

    def ours(self, threads=1):
        last = [t.permute(0, 2, 3, 1).contiguous().numpy() for t in (self.g, self.x, self.w)]
        attrs = self.attrs | {"layout": "channels_last"}
        gradient = _C.evaluate("convolution_backward", last, attrs, threads=threads)[1]
        return torch.from_numpy(gradient).permute(0, 3, 1, 2)


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("sizes", CASES, ids=str)
def test_gradient(sizes):
    case = Case(*sizes)
    helpers.check_op_sample(case.ours(), case.torch(torch.float32), case.torch(torch.float64))


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("sizes", CASES, ids=str)
def test_bits_do_not_depend_on_threads(sizes):
    case = Case(*sizes)
    one = case.ours()
    for threads in (2, 3, 7):
        assert torch.equal(one, case.ours(threads))


@pytest.mark.usefixtures("loops")
def test_numbers_without_an_end_stay_with_what_they_meet():
    """Infinities and NaN reach the channels they are multiplied with, and no others."""
    case = Case(2, 64, 13, (6, 5), {})
    case.x[1, 40, 0, 0], case.g[0, 3, 2, 2] = torch.inf, torch.nan
    finite = case.ours().isfinite()
    rows, channels = [o for o in range(13) if o != 3], [c for c in range(64) if c != 40]
    assert finite[rows][:, channels].all()
    assert not finite[3].any()
    assert torch.equal(finite[rows], case.torch(torch.float32).isfinite()[rows])

"""Arguments for every overload that capture takes apart.

``CASES[overload]`` is a function of a :class:`Numbers`, which makes tensors of one dtype; it
returns argument lists. A list may end in a dictionary of keyword arguments.
"""

import torch

aten = torch.ops.aten


class Numbers:
    """Tensors of one dtype.

    Args:
        dtype: of what calls of this return.
        special: whether zeros, infinities, NaN and the like are among floating-point numbers.
    """

    def __init__(self, dtype: torch.dtype, special: bool):
        self.dtype = dtype
        self.special = special

    def __call__(self, *sizes, scale: float = 2.0) -> torch.Tensor:
        if not self.dtype.is_floating_point:
            return torch.randint(0 if self.dtype in (torch.bool, torch.uint8) else -9,
                                 2 if self.dtype is torch.bool else 9, sizes).to(self.dtype)
        numbers = torch.randn(sizes, dtype=torch.float64) * scale
        if self.special and numbers.numel() > 8:
            values = (0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1.0, -1.0, 0.5)
            where = torch.randperm(numbers.numel())[:16]
            picked = torch.randint(len(values), where.shape)
            numbers.view(-1)[where] = torch.tensor(values, dtype=torch.float64)[picked]
        return numbers.to(self.dtype)


    def positive(self, *sizes) -> torch.Tensor:
        """Finite numbers, in float32 at least, from 0.5 to 2."""
        wide = self.dtype if self.dtype is torch.float64 else torch.float32
        return torch.rand(sizes, dtype=wide) * 1.5 + 0.5


def _elementwise(count, *more, **named):
    def cases(n):
        sizes = ((4, 9), (9,)), ((5, 1), (1, 7)), ((), (3,)), ((0, 3), (3,))
        return [[n(*s[i % 2]) for i in range(count)] + [*more, named] for s in sizes]
    return cases


def _together(*functions):
    return lambda n: [case for function in functions for case in function(n)]


def _one(*more, **named):
    return lambda n: [[n(*s), *more, named] for s in ((6, 8), (), (0, 3))]


def _like(count, *more):
    """Several tensors of one shape, gradients say."""
    return lambda n: [[*(n(*s) for _ in range(count)), *more, {}] for s in ((6, 8), (3,), (0, 2))]


def _with_buffer(x):
    """What the backward operation of log_sigmoid takes, for numbers that it is defined for."""
    buffer = aten.log_sigmoid_forward.default(x)[1] if x.is_floating_point() else x
    return x, buffer


def _index():
    return torch.tensor([3, 0])


def _padded(dims):
    return lambda n: [[n(*(5, 6, 7)[:dims + 1]), p, {}] for p in (
        [1, 2] * dims, [0, 3] * dims, [2, 0] * dims)] + [[n(2, *(5, 6, 7)[:dims + 1]),
                                                         [1] * 2 * dims, {}]]


def _padded_backward(dims):
    def cases(n):
        sizes = (5, 6, 7, 8)[:dims + 1]
        pads = [1, 2] * dims
        grown = [sizes[0], *(size + 3 for size in sizes[1:])]
        return [[n(*grown), n(*sizes), pads, {}]]
    return cases


def of_each(n, *more):
    """Gradients of a loss by one for each element; other forms are left to the rows."""
    if not n.dtype.is_floating_point:
        return []
    return [[n(4, 6), n(4, 6), n(4, 6), 1, *more, {}], [n(6), n(4, 6), n(4, 6), 2, *more, {}],
            [n(4, 6), n(4, 6), n(6), 0, *more, {}], [n(), n(4, 6), n(4, 1), 1, *more, {}]]


def _weighted(n):
    """Probabilities, targets, and weights of the same and of other types."""
    pair = torch.rand(4, 6).to(n.dtype), torch.randint(2, (4, 6)).to(n.dtype)
    return [[*pair, weight] for weight in (n.positive(4, 6), n.positive(4, 6).half(), None)]


def beside(n):
    """A loss of operands that are broadcast; others are left to the row."""
    return [[n(4, 6), n(6), r, {}] for r in (0, 1, 2)] + [[n(4, 1), n(4, 6), 0, {}]]


CASES = {
    aten._efficientzerotensor.default: lambda n: [[[2, 3], {"dtype": n.dtype}]],
    aten.addcmul.default: _together(_elementwise(3), _elementwise(3, value=0.5),
                                    _elementwise(3, value=-3)),
    aten.addcdiv.default: _together(_elementwise(3), _elementwise(3, value=0.3)),
    aten.lerp.Scalar: _together(_elementwise(2, 0.3), _elementwise(2, 0.8), _elementwise(2, -2.0)),
    aten.lerp.Tensor: _elementwise(3),
    aten.sgn.default: _one(),
    aten.xlogy.Tensor: _elementwise(2),
    aten.logaddexp.default: _elementwise(2),
    aten.fmax.default: _elementwise(2),
    aten.lcm.default: _elementwise(2),
    aten.fmin.default: _elementwise(2),
    aten.sinc.default: _one(),
    aten.isposinf.default: _one(),
    aten.isneginf.default: _one(),
    aten.nan_to_num.default: _together(_one(), _one(1.0, 2.0, -3.0), _one(nan=0.5)),
    aten.celu.default: _together(_one(), _one(0.3)),
    aten.glu.default: lambda n: [[n(4, 8), {}], [n(4, 8), 0, {}], [n(0, 8), {}]],
    aten.glu_backward.default: lambda n: [[n(4, 4), n(4, 8), -1, {}], [n(2, 8), n(4, 8), 0, {}]],
    aten._prelu_kernel.default: lambda n: [[n(4, 8), n(1, 8), {}], [n(0, 8), n(1, 1), {}]],
    aten._prelu_kernel_backward.default: lambda n: [[n(4, 8), n(4, 8), n(1, 8), {}]],
    aten.log_sigmoid_forward.default: lambda n: [*_one()(n), [n(6, 8, scale=30.0), {}]],
    aten.log_sigmoid_backward.default: lambda n: [
        [n(6, 8), *_with_buffer(n(6, 8)), {}], [n(6, 8), *_with_buffer(n(6, 8, scale=30.0)), {}]],
    aten.softshrink.default: _together(_one(), _one(0.3)),
    aten.hardshrink.default: _together(_one(), _one(0.3)),
    aten.softshrink_backward.default: _like(2, 0.5),
    aten.hardshrink_backward.default: _like(2, 0.5),
    aten.binary_cross_entropy_with_logits.default: lambda n: [
        [n(4, 6), n(4, 6), None, None, reduction, {}] for reduction in (0, 1, 2)] + [
        [n(4, 6), n(4, 6), n(4, 6), n(6), reduction, {}] for reduction in (0, 1, 2)] + [
        [n(4, 6, scale=40.0), n(4, 6), None, None, 0, {}]],
    aten.binary_cross_entropy.default: lambda n: [
        [*tensors, r, {}] for tensors in _weighted(n) for r in (0, 1, 2)],
    aten.binary_cross_entropy_backward.default: lambda n: [
        [torch.randn((4, 6) if r == 0 else ()).to(n.dtype), *tensors, r, {}]
        for tensors in _weighted(n) for r in (0, 1, 2)],
    aten.mse_loss.default: beside,
    aten.smooth_l1_loss.default: beside,
    aten.huber_loss.default: lambda n: [[n(4, 6), n(4, 6), r, {}] for r in (0, 1, 2)] + [
        [n(4, 6), n.positive(4, 6), r, 0.5, {}] for r in (0, 1, 2)],
    aten.soft_margin_loss.default: lambda n: [[n(4, 6), n(4, 6), r, {}] for r in (0, 1, 2)],
    aten.soft_margin_loss_backward.default: lambda n: [
        [n(4, 6), n(4, 6), n(4, 6), 0, {}], [n(), n(4, 6), n(4, 6), 1, {}],
        [n(), n(4, 6), n(4, 6), 2, {}], [n(), n(4, 6, scale=20.0), n(4, 6), 2, {}]],
    aten.mse_loss_backward.default: lambda n: of_each(n),
    aten.smooth_l1_loss_backward.default: lambda n: of_each(n, 0.5),
    aten.huber_loss_backward.default: lambda n: of_each(n, 0.5),
    aten.dist.default: lambda n: [[n(4, 6), n(6), p, {}] for p in (2, 1, 3, torch.inf, 0)],
    aten.nansum.default: lambda n: [[n(4, 6), {}], [n(4, 6), 1, {}], [n(4, 6), [0, 1], True, {}],
                                    [n(0, 3), {}], [n(4, 6), 0, {"dtype": torch.float32}]],
    aten._weight_norm_interface.default: lambda n: [[n(4, 6), n(4, 1), {}],
                                                    [n(4, 6), n(1, 6), 1, {}], [n(5), n(5), {}]],
    aten._weight_norm_interface_backward.default: lambda n: [
        [n(4, 6), n(4, 6), n(4, 1), n.positive(4, 1), 0, {}],
        [n(5), n(5), n(5), n.positive(5), 0, {}]],
    aten.aminmax.default: lambda n: [[n(4, 6), {}], [n(4, 6), {"dim": 1}],
                                     [n(4, 6), {"dim": 0, "keepdim": True}], [n(), {}]],
    aten.addmv.default: lambda n: [
        [n(m), n(m, k), n(k), {"beta": beta}]
        for m, k in ((3, 0), (0, 3), (0, 0), (3, 4)) for beta in (1, 2, 0)],
    aten.addbmm.default: lambda n: [[n(4, 5), n(3, 4, 6), n(3, 6, 5), {}],
                                    [n(5), n(3, 4, 6), n(3, 6, 5), {"beta": 2, "alpha": 3}],
                                    [n(4, 5), n(3, 4, 6), n(3, 6, 5), {"beta": 0}]],
    aten.addr.default: lambda n: [[n(4, 5), n(4), n(5), {}], [n(5), n(4), n(5), {
        "beta": 2, "alpha": 3}], [n(4, 5), n(4), n(5), {"beta": 0}], [n(4, 5), n(4), n(5), {
            "beta": 0.6, "alpha": 0.2}]],
    aten.trace.default: lambda n: [[n(4, 6), {}], [n(0, 3), {}]],
    aten.linalg_cross.default: lambda n: [[n(4, 3), n(4, 3), {}], [n(3, 4), n(3, 1), {"dim": 0}]],
    aten.index_fill.int_Scalar: lambda n: [[n(5, 6), 1, _index(), 2, {}],
                                           [n(5), 0, _index(), 0.5, {}]],
    aten.index_fill.int_Tensor: lambda n: [[n(5, 6), 1, _index(), n(), {}]],
    aten.scatter_add.default: lambda n: [[n(5, 6), 1, torch.zeros(2, 0).byte(), n(2, 0), {}]],
    aten.index_copy.default: lambda n: [[n(5, 6), 1, _index(), n(5, 2), {}],
                                        [n(5), 0, _index(), n(2), {}]],
    aten.channel_shuffle.default: lambda n: [[n(2, 6, 3, 2), 3, {}]],
    aten.pixel_shuffle.default: lambda n: [[n(2, 8, 3, 2), 2, {}], [n(4, 3, 2), 2, {}]],
    aten.pixel_unshuffle.default: lambda n: [[n(2, 3, 4, 6), 2, {}]],
    aten.diag_embed.default: lambda n: [[n(3, 4), {}], [n(3, 4), 1, {}], [n(3, 4), -2, 0, 2, {}]],
    aten.upsample_linear1d.default: lambda n: [[n(2, 3, 5), [9], False, {}],
                                               [n(2, 3, 5), [3], True, {}]],
    aten.upsample_linear1d_backward.default: lambda n: [[n(2, 3, 9), [9], [2, 3, 5], False, {}]],
    aten.upsample_nearest1d.default: lambda n: [[n(2, 3, 5), [9], {}], [n(2, 3, 5), [3], 0.6, {}]],
    aten.upsample_nearest1d_backward.default: lambda n: [[n(2, 3, 9), [9], [2, 3, 5], {}]],
}
for _kind in ("reflection", "replication"):
    for _dims in (1, 2, 3):
        CASES[getattr(aten, f"{_kind}_pad{_dims}d").default] = _padded(_dims)
        CASES[getattr(aten, f"{_kind}_pad{_dims}d_backward").default] = _padded_backward(_dims)

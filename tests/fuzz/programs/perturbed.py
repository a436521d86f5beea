"""Runs of eager with each arithmetic result moved by a few roundings: what a program determines.

What these runs differ by no implementation owes to its users.
"""

import contextlib
import random
from collections.abc import Callable
from functools import partial, reduce

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from poptorch._base.torch_private import tracing as private
from tests.fuzz.programs.program import NARROW, WIDE, Program
from tests.fuzz.programs.running import eager

# A few roundings of what is computed in each dtype; in float64, of long sums in any order: it is
# there for a look at the same program with far smaller errors.
STEP = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-22,
        torch.float64: 2.0**-46}
SIZES = 4  # the largest number of roundings
HALVES = (torch.float16, torch.bfloat16)

# What computes nothing new: its results are values of its operands.
_MOVES = frozenset(
    "copy_ clone _to_copy cat stack where index index_put gather scatter index_select masked_fill "
    "fill fill_ zero_ zeros ones full zeros_like ones_like full_like new_zeros new_ones relu neg "
    "abs maximum minimum clamp clamp_min clamp_max amax amin max min sort topk flip roll tril triu "
    "repeat constant_pad_nd embedding masked_fill_ index_put_ scatter_ index_copy index_fill "
    "select_backward slice_backward slice_scatter select_scatter diagonal_scatter "
    "max_pool2d_with_indices threshold_backward floor ceil round trunc sign arange lift_fresh "
    "max_pool3d_with_indices adaptive_max_pool2d adaptive_max_pool3d max_unpool2d max_unpool3d "
    "take put im2col upsample_nearest1d upsample_nearest2d upsample_nearest3d pixel_shuffle "
    "pixel_unshuffle channel_shuffle masked_scatter bucketize searchsorted one_hot cummax cummin "
    "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d "
    "replication_pad3d kthvalue mode median fmax fmin "
    "scalar_tensor multilabel_margin_loss_forward detach alias unfold_backward isnan "
    "_local_scalar_dense".split())

# What adds and subtracts within one step: where all of it cancels, roundings are left.
_CENTERS = frozenset(
    "native_layer_norm native_group_norm native_batch_norm _native_batch_norm_legit var std "
    "var_mean std_mean sum mean mm bmm addmm dot mv convolution convolution_backward "
    "native_batch_norm_backward native_layer_norm_backward native_group_norm_backward "
    "_softmax_backward_data _log_softmax_backward_data upsample_linear1d upsample_bilinear2d "
    "upsample_bicubic2d upsample_trilinear3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa "
    "grid_sampler_2d grid_sampler_3d cumsum".split())

# What reads between elements, at places that are computed: by an error of a place, which grows with
# the size, what is read there changes by as much as neighbours differ.
_PLACES = frozenset(name for name in _CENTERS if name.startswith(
    ("upsample_", "_upsample_", "grid_sampler_")))

# What rotates: each element of a matrix has an error as large as its largest ones have, by which a
# small one may change its sign. So has the matrix that it was made of, which counts where vectors
# belong to values that are close together.
_ROTATIONS = frozenset("_linalg_eigh _linalg_svd linalg_qr".split())

# Of 16-bit floats: what these give for float32 weights was rounded to 16 bits, too.
_GRADIENTS_OF_NORMS = frozenset(
    "native_layer_norm_backward native_group_norm_backward native_batch_norm_backward".split())

# What is 0 where a gate is shut, or not quite, by the formula that is used.
_SATURATE = frozenset("gelu gelu_backward silu silu_backward mish mish_backward".split())

# What is a product by a probability near 0 that is found by subtracting from 1, or not.
_TAILS = frozenset("gelu gelu_backward".split())


# Ops that subtract a mean, returned with the reciprocal of the deviation in addition to the result.
_NORMS = frozenset(
    "native_layer_norm native_group_norm native_batch_norm _native_batch_norm_legit".split())


def _cancelled(out, args) -> torch.Tensor:
    """The size of what a norm adds and subtracts: of one element nothing is left but roundings."""
    shifted = (out[1].abs() * out[2].abs()).nan_to_num()
    weight = next((x for x in args[1:] if isinstance(x, torch.Tensor)), shifted)
    sizes = [x.abs().max() if x.numel() else x.new_zeros(()) for x in (shifted, weight)]
    return (sizes[0] if weight is shifted else sizes[0] * sizes[1]).to(out[0].dtype)


# What adds or subtracts, element by element.
_SUMS = frozenset("add sub rsub lerp addcmul addcdiv add_ sub_ lerp_ addcmul_ addcdiv_".split())

# The same along dimensions.
_REDUCED = frozenset("sum mean".split())

# Equal or not, where a result of arithmetic is compared, is a matter of its last rounding.
_EQUALITIES = frozenset("eq ne".split())


def _is_floating(x) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def _sizes(args) -> torch.Tensor:
    """The largest of all floating-point operands, element by element."""
    return reduce(torch.maximum, [x.detach().abs() for x in args if _is_floating(x)])


class Perturbing(TorchDispatchMode):
    """Moves each floating-point result of arithmetic by a few roundings.

    Args:
        seed: of the noise.
        size: by how many roundings.
    """

    def __init__(self, seed: int, size: float):
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)
        self._size = size
        self._is_exact = seed % 3 == 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        centers = name in _CENTERS and _is_floating(args[0])
        if centers:
            probe = self._probe(func, args, kwargs)
            if args[0].dtype not in HALVES:
                args = (self._move(args[0].contiguous().clone()), *args[1:])
        cancels = self._is_exact and name in _SUMS | _REDUCED and _is_floating(args[0])
        if cancels:  # now: the operation may change an operand
            sizes = (func(args[0].abs(), *args[1:], **(kwargs or {})) if name in _REDUCED
                     else _sizes(args))
        if name in _ROTATIONS:
            args = (self._move_together(args[0].clone()), *args[1:])
        out = func(*args, **(kwargs or {}))
        if cancels:  # where nearly all of it cancels, all may
            most = 2 * self._size * STEP[out.dtype] * sizes
            out.detach().masked_fill_(out.detach().abs() <= most, 0)
        if name in _EQUALITIES and _is_floating(args[0]) and not self._is_exact:
            out = out.masked_fill(self._may_be_equal(*args[:2]), name == "eq")
        if centers:
            if name in _NORMS:
                probe = (_cancelled(out, args).maximum(probe[0].abs()), *probe[1:])
            pytree.tree_map_(self._shift, out, probe)
        is_view = any(r.alias_info is not None and not r.alias_info.is_write
                      for r in func._schema.returns)
        if name in _PLACES and args[0].numel():
            self._move_by(out, 2 * max(args[0].shape) * args[0].abs().max() * STEP[out.dtype])
        if name in _ROTATIONS:
            pytree.tree_map_(self._move_together, out)
        if name == "_log_softmax":  # the logarithm of a sum that is nearly 1
            out += (torch.rand(out.shape, generator=self._generator) - 0.5) * 4 * STEP[out.dtype]
        if name in _SATURATE and not self._is_exact:  # what is left there may be anything small
            pytree.tree_map_(lambda x: x.masked_fill_(x == 0, 1e-30), out)
        if name in _TAILS:
            self._move_by(out, 2 * self._size * STEP[torch.float32] * args[0].detach().abs())
        if name in _GRADIENTS_OF_NORMS and args[0].dtype in HALVES:
            pytree.tree_map_(partial(self._move, dtype=args[0].dtype), out)
        elif name not in _MOVES and not is_view:
            pytree.tree_map_(self._move, out)
        elif name == "_to_copy" and out.dtype in HALVES and args[0].is_floating_point():
            rounded = out.to(args[0].dtype) != args[0]
            out.copy_(torch.where(rounded, self._move(out.clone()), out))
        return out

    def _move_by(self, x, most) -> None:
        """Moves a tensor by up to half of ``most``; in exact runs what is no larger is 0."""
        if self._is_exact:
            x.detach().masked_fill_(x.detach().abs() <= most, 0)
        else:
            x += (torch.rand(x.shape, generator=self._generator) - 0.5).to(x.dtype) * most

    def _may_be_equal(self, x, y) -> torch.Tensor:
        distance = x.detach().double() - torch.as_tensor(y).detach().double()  # y may be a bool
        return distance.abs() <= 2 * self._size * STEP[x.dtype] * _sizes((x, y))

    def _probe(self, func, args, kwargs):
        """The results for an operand of the same size in which nothing cancels."""
        size = args[0].abs().max() if args[0].numel() else 1.0
        noise = torch.randn(args[0].shape, generator=self._generator, dtype=args[0].dtype) * size
        kept = [x.clone() if isinstance(x, torch.Tensor) else x for x in args[1:]]
        return func(noise, *kept, **(kwargs or {}))

    def _shift(self, x, probe):
        """Moves all elements alike, as an error of their mean does."""
        if _is_floating(x) and x.numel():
            # 16-bit floats are computed in float32, so that is what is left where they cancel.
            step = STEP[torch.float32 if x.dtype in HALVES else x.dtype]
            most = 2 * step * torch.maximum(x.abs(), probe.abs()).max().item() * self._size
            with torch.no_grad():
                if self._is_exact:  # all of it may cancel, too
                    x.detach().masked_fill_(x.abs() <= most, 0)
                else:
                    x.detach().add_((2 * torch.rand((), generator=self._generator) - 1) * most)

    def _move_together(self, x):
        """Moves the elements of each matrix by roundings of its largest one."""
        if _is_floating(x) and x.dim() > 1 and x.numel():
            most = 4 * self._size * STEP[x.dtype] * x.detach().abs().amax((-2, -1), keepdim=True)
            noise = torch.rand(x.shape, generator=self._generator, dtype=x.dtype) - 0.5
            with torch.no_grad():
                x.detach().add_(noise * most)
        return x

    def _noise(self, x) -> torch.Tensor:
        """Numbers in [0, 1); in exact runs the same for equal elements, so that they stay equal."""
        if not self._is_exact:
            return torch.rand(x.shape, generator=self._generator, dtype=torch.float64)
        values, which = torch.unique(x, return_inverse=True)
        return torch.rand(values.shape, generator=self._generator, dtype=torch.float64)[which]

    def _move(self, x, dtype=None):
        """Moves a tensor by roundings of a type: its own, unless another is given."""
        if self._is_exact and isinstance(x, torch.Tensor) and x.dtype in HALVES:
            return x  # numbers that are equal stay so
        if _is_floating(x) and x.numel() and not x._is_zerotensor():  # those have no memory
            noise = self._noise(x.detach())
            factor = 1 + (noise - 0.5) * (4 * self._size * STEP[dtype or x.dtype])
            with torch.no_grad():
                moved = x.detach().double() * factor
                # A probability is no larger than 1, nor is a sine; what is saturated may be equal.
                within = x.detach().abs() <= 1
                moved = torch.where(within, moved.clamp(-1, 1), moved)
                if self._is_exact:
                    is_one = within & (moved.abs() >= 1 - 2 * self._size * STEP[dtype or x.dtype])
                    moved = torch.where(is_one, moved.sign(), moved)
                moved = moved.to(x.dtype)
            try:
                torch.ops.aten.copy_.default(x.detach(), moved)
            except RuntimeError:  # several elements at one place
                pass
        return x


@contextlib.contextmanager
def _in_steps():
    """Leaves out what has one operation for many steps: for a recurrent layer, for attention."""
    with private.without_onednn(), sdpa_kernel(SDPBackend.MATH):
        yield


def moved_runs(run: Callable) -> list:
    """What ``run()`` gives, three times, where each result of arithmetic in it is moved by up to a
    rounding; without those that eager refuses. One plain run has much of a rounding left where
    values cancel, or nothing by luck."""
    found = []
    for seed in (1, 2, 4):
        with Perturbing(seed, 0.25), contextlib.suppress(Exception):
            found.append(run())
    return found


def perturbed(program: Program, first: int, count: int) -> list:
    """Runs of eager with other roundings, numbers ``first`` and on; without those that it refuses.
    """
    world = WIDE if program.setting.wide else NARROW
    runs = []
    for i in range(first, first + count):
        torch.manual_seed(random.Random(i).randrange(2**31))
        # A moved rounding may leave what eager accepts, such as an argument of arcsin or an index.
        with Perturbing(i, 1.0 + i % SIZES), _in_steps(), contextlib.suppress(Exception):
            runs.append(eager(program, world))
    return runs

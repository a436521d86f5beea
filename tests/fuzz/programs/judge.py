"""Whether a random program computes what PyTorch computes.

The reference is eager with all floats in float64. Eager's own error is the measure: with ``e`` the
largest error of eager in the program's dtypes, ours may be ``4 e`` plus a rounding of the dtype.
Where that is exceeded, the program is run again in eager with each arithmetic result moved by a few
roundings: what these runs differ by is how well the program determines its results at all, and
counts as eager's error, too. A comparison, an argmax or an integer that such a rounding turns
around says nothing. Where eager has no digit right, its error is known by its order of magnitude.
"""

import contextlib
import math
import random
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from poptorch.errors import Error
from tests.fuzz.programs.program import NARROW, NATURAL, WIDE, Program
from tests.fuzz.programs.running import eager, through_poptorch
from tests.fuzz.programs.undetermined import is_undetermined

FACTOR = 4.0
# Where eager's error is larger than all of the numbers, it is known by its order of magnitude only.
ORDER = 1024.0
# What is by so much smaller than the largest number of a run may be 0 in the reference: so is
# 1 - tanh(x)^2 in float64 where it is below a rounding of 1.
SMALLEST = 2.0**-53
# Perturbed runs that a suspect is given; the second number only if the first are not enough.
RUNS = (4, 24)
NARROWED = {torch.int64: torch.int32, torch.float64: torch.float32}
# A few roundings of what is computed in each dtype; in float64, of long sums in any order: it is
# there for a look at the same program with far smaller errors.
STEP = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-22,
        torch.float64: 2.0**-46}
_HALVES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Finding:
    """What is wrong with a program.

    Attributes:
        kind: ``wrong``, ``refused`` or ``broken``.
        words: what differs, or the error's message.
        error: the exception, if there is one.
    """

    kind: str
    words: str
    error: BaseException | None = None


class Invalid(Exception):
    """Eager itself refuses the program, or it says nothing."""


def judge(program: Program, note=None) -> Finding | None:
    """Runs a program in eager and through poptorch; None if all is in order.

    Args:
        program: what to run.
        note: called with True before poptorch runs the program, and with False after that.

    Raises:
        Invalid: The program cannot be judged.
    """
    try:
        natural = eager(program, NATURAL)
        reference = eager(program, WIDE)
        near = natural
        if program.setting.wide:
            near = reference
        elif "F64" in str(program):
            near = eager(program, NARROW)
    except Exception as error:
        raise Invalid(f"{type(error).__name__}: {error}") from error
    if _leaves_int32(natural):
        raise Invalid("integers that the device has not")
    note = note or (lambda is_ours: None)
    note(True)
    try:
        ours = through_poptorch(program)
    except Error as error:
        kind = "broken" if "lease report" in str(error) else "refused"
        return Finding(kind, str(error), error)
    except Exception as error:
        return Finding("broken", f"{type(error).__name__}: {error}", error)
    finally:
        note(False)
    expected = reference if program.setting.wide else natural
    words = _types_differ(ours, expected, program.setting.wide)
    if words:
        return Finding("wrong", words)
    finding = _judged(program, ours, near, reference)
    if finding is not None and not program.setting.wide and _passes_int32(program):
        raise Invalid("integers on the way that the device has not")
    if finding is not None and is_undetermined(program):
        raise Invalid("NaN or infinity that eager has in some types or sizes only")
    return finding


def _judged(program: Program, ours, near, reference) -> Finding | None:
    suspects = list(reference)
    variants = [near]
    smallest = SMALLEST * max(1.0, *map(_largest, reference.values()))
    for count in (0, *RUNS):
        if count:
            variants += _perturbed(program, len(variants), count)
        found = {name: _difference(name, ours[name], variants, reference[name], smallest,
                                   _is_trained(name, program))
                 for name in suspects}
        found = {name: words for name, words in found.items() if words}
        suspects = list(found)
        if not suspects:
            return None
    if _diverges(variants, reference):
        raise Invalid("training in which no digit is determined")
    return Finding("wrong", "\n".join(found.values()))


def _diverges(variants: list, reference) -> bool:
    """Whether runs of eager differ by more than the largest number that training comes to, or
    come to no number where the reference does."""
    trained = [name for name, x in reference.items()
               if name.startswith(("gradient", "state")) and x.is_floating_point()]
    size = max((_largest(reference[name]) for name in trained), default=0.0)

    def is_lost(run, name) -> bool:
        known = reference[name].isfinite()
        return bool((known & ~run[name].isfinite()).any()) \
            or _largest(run[name].double() - reference[name].double()) > size

    return any(is_lost(run, name) for run in variants for name in trained)


def _leaves_int32(run) -> bool:
    return any(map(_is_beyond_int32, run.values()))


def _is_beyond_int32(x) -> bool:
    limits = torch.iinfo(torch.int32)
    return isinstance(x, torch.Tensor) and x.dtype is torch.int64 and x.numel() > 0 \
        and bool(x.max() > limits.max or x.min() < limits.min)


class _NotingIntegers(TorchDispatchMode):
    """Notes whether the result of any operation leaves int32, also where a later one is within."""

    is_beyond = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.is_beyond |= any(map(_is_beyond_int32, pytree.tree_leaves(out)))
        return out


def _passes_int32(program: Program) -> bool:
    with _NotingIntegers() as mode:
        eager(program, NATURAL)
    return mode.is_beyond


def _types_differ(ours, expected, wide: bool) -> str:
    if sorted(ours) != sorted(expected):
        return f"tensors {sorted(ours)}, expected {sorted(expected)}"
    for name, tensor in expected.items():
        dtype = tensor.dtype
        if not wide and ("result" in name or name.startswith("gradient")):
            dtype = NARROWED.get(dtype, dtype)
        if ours[name].dtype is not dtype or ours[name].shape != tensor.shape:
            return (f"{name}: {ours[name].dtype}{list(ours[name].shape)}, expected "
                    f"{dtype}{list(tensor.shape)}")
    return ""


def _largest(x) -> float:
    if not x.is_floating_point() or not x.numel():
        return 0.0
    largest = x.abs().max().item()
    if math.isfinite(largest):
        return largest
    finite = x[x.isfinite()].abs()
    return finite.max().item() if finite.numel() else 0.0


def _is_near(ours, near, reference, smallest: float) -> bool:
    """Whether all is finite, and so near that eager's error need not be known."""
    if not ours.numel():
        return True
    error = (ours - reference).abs_().max().item()
    sizes = near.abs().max().item(), reference.abs().max().item()
    if not all(map(math.isfinite, (error, *sizes))):
        return False
    step = STEP[torch.float64 if ours.dtype is torch.float64 else near.dtype]
    return error <= 2 * step * sizes[1] + smallest


def _is_trained(name: str, program: Program) -> bool:
    """Whether a tensor is a gradient, or comes after an update by one."""
    later = not name.startswith("call 0") or program.setting.iterations > 1
    return name.startswith(("gradient", "state")) or bool(program.loss) and later


def _difference(name: str, ours, variants: list, reference, smallest: float,
                is_trained: bool) -> str:
    """What is wrong with one tensor, or nothing; ``variants`` are runs of eager."""
    near = [run[name] for run in variants]
    if not reference.is_floating_point():
        return _integers_differ(name, ours, near, reference)
    if _is_near(ours, near[0], reference, smallest):
        return ""
    ours64, near64 = ours.double(), [x.double() for x in near]
    reference = reference.double()
    known = torch.isfinite(reference)
    for x in near64:
        known &= torch.isfinite(x)
    # Where a 16-bit type overflows, infinities may meet zeros in another order.
    overflows = any((torch.isfinite(reference) & ~torch.isfinite(x)).any() for x in near64)
    if overflows:
        known &= torch.isfinite(ours64)
    bad = known & ~torch.isfinite(ours64)
    if bad.any():
        return f"{name}: {_some(ours64, bad)}, expected {_some(reference, bad)}"
    error = (ours64 - reference).abs()[known]
    if error.numel():
        own = max((x - reference).abs()[known].max().item() for x in near64)
        size = reference[known].abs().max().item()
        step = STEP[torch.float64 if ours.dtype is torch.float64 else near[0].dtype]
        limit = (ORDER if own > size else FACTOR) * own + 2 * step * size + smallest
        if error.max().item() > limit:
            at = known & ((ours64 - reference).abs() > limit)
            return (f"{name}: error {error.max().item():.2e}, limit {limit:.2e} (eager's is "
                    f"{own:.2e}): {_some(ours64, at)}, expected {_some(reference, at)}")
    return _special_differ(name, ours64, near64, reference, is_trained)


def _integers_differ(name: str, ours, near: list, reference) -> str:
    expected = near[0]
    ours = ours.to(expected.dtype)
    different = (ours != expected) & (ours != reference)
    for other in near[1:]:  # what a rounding turns around says nothing
        different &= other == expected
    if not different.any():
        return ""
    return f"{name}: {_some(ours, different)}, expected {_some(expected, different)}"


def _special_differ(name: str, ours, near: list, reference, is_trained: bool) -> str:
    """NaN and infinity must be where all agree that they are. In gradients and what comes of them
    one is as good as the other: whether a factor of an infinity is 0 is a matter of a rounding."""
    def kind(x):
        if is_trained:
            return ~x.isfinite() * 1
        return x.isnan() * 1 + x.isposinf() * 2 + x.isneginf() * 3

    agreed = kind(reference)
    special = agreed > 0
    for x in near:
        special &= kind(x) == agreed
    bad = special & (kind(ours) != agreed)
    return f"{name}: {_some(ours, bad)}, expected {_some(reference, bad)}" if bad.any() else ""


def _some(x, where) -> str:
    places = where.nonzero()[:3].tolist()
    rest = f" and {int(where.sum()) - 3} more" if where.sum() > 3 else ""
    return ", ".join(f"{x[tuple(p)].item():.7g} at {p}" for p in places) + rest


# -- perturbed runs ----------------------------------------------------------------------------

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

# Of 16-bit floats: what these give for float32 weights was rounded to 16 bits, too.
_GRADIENTS_OF_NORMS = frozenset(
    "native_layer_norm_backward native_group_norm_backward native_batch_norm_backward".split())

# What is 0 where a gate is shut, or not quite, by the formula that is used.
_SATURATE = frozenset("gelu gelu_backward silu silu_backward mish mish_backward".split())


# What subtracts a mean, given beside the result with the reciprocal of the deviation.
_NORMS = frozenset(
    "native_layer_norm native_group_norm native_batch_norm _native_batch_norm_legit".split())


def _cancelled(out, args) -> torch.Tensor:
    """The size of what a norm adds and subtracts: of one element nothing is left but roundings."""
    shifted = (out[1].abs() * out[2].abs()).nan_to_num()
    weight = next((x for x in args[1:] if isinstance(x, torch.Tensor)), shifted)
    sizes = [x.abs().max() if x.numel() else x.new_zeros(()) for x in (shifted, weight)]
    return (sizes[0] if weight is shifted else sizes[0] * sizes[1]).to(out[0].dtype)


class _Perturbing(TorchDispatchMode):
    """Moves each floating-point result of arithmetic by a few roundings."""

    def __init__(self, seed: int, size: float):
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)
        self._size = size
        self._is_exact = seed % 3 == 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        centers = name in _CENTERS and args[0].is_floating_point()
        if centers:
            probe = self._probe(func, args, kwargs)
            if args[0].dtype not in _HALVES:
                args = (self._move(args[0].contiguous().clone()), *args[1:])
        out = func(*args, **(kwargs or {}))
        if centers:
            if name in _NORMS:
                probe = (_cancelled(out, args).maximum(probe[0].abs()), *probe[1:])
            pytree.tree_map_(self._shift, out, probe)
        is_view = any(r.alias_info is not None and not r.alias_info.is_write
                      for r in func._schema.returns)
        if name in _PLACES and args[0].numel():
            most = 2 * max(args[0].shape) * args[0].abs().max() * STEP[out.dtype]
            out += (torch.rand(out.shape, generator=self._generator) - 0.5).to(out.dtype) * most
        if name == "_log_softmax":  # the logarithm of a sum that is nearly 1
            out += (torch.rand(out.shape, generator=self._generator) - 0.5) * 4 * STEP[out.dtype]
        if name in _SATURATE and not self._is_exact:  # what is left there may be anything small
            pytree.tree_map_(lambda x: x.masked_fill_(x == 0, 1e-30), out)
        if name in _GRADIENTS_OF_NORMS and args[0].dtype in _HALVES:
            pytree.tree_map_(partial(self._move, dtype=args[0].dtype), out)
        elif name not in _MOVES and not is_view:
            pytree.tree_map_(self._move, out)
        elif name == "_to_copy" and out.dtype in _HALVES and args[0].is_floating_point():
            rounded = out.to(args[0].dtype) != args[0]
            out.copy_(torch.where(rounded, self._move(out.clone()), out))
        return out

    def _probe(self, func, args, kwargs):
        """The results for an operand of the same size, of which nothing cancels."""
        size = args[0].abs().max() if args[0].numel() else 1.0
        noise = torch.randn(args[0].shape, generator=self._generator, dtype=args[0].dtype) * size
        kept = [x.clone() if isinstance(x, torch.Tensor) else x for x in args[1:]]
        return func(noise, *kept, **(kwargs or {}))

    def _shift(self, x, probe):
        """Moves all elements alike, as an error of their mean does."""
        if isinstance(x, torch.Tensor) and x.is_floating_point() and x.numel():
            # 16-bit floats are computed in float32, so that is what is left where they cancel.
            step = STEP[torch.float32 if x.dtype in _HALVES else x.dtype]
            most = 2 * step * torch.maximum(x.abs(), probe.abs()).max().item() * self._size
            with torch.no_grad():
                if self._is_exact:  # all of it may cancel, too
                    x.detach().masked_fill_(x.abs() <= most, 0)
                else:
                    x.detach().add_((2 * torch.rand((), generator=self._generator) - 1) * most)

    def _move(self, x, dtype=None):
        """Moves a tensor by roundings of a type: its own, unless another is given."""
        if self._is_exact and isinstance(x, torch.Tensor) and x.dtype in _HALVES:
            return x  # numbers that are equal stay so
        if isinstance(x, torch.Tensor) and x.is_floating_point() and x.numel():
            noise = torch.rand(x.shape, generator=self._generator, dtype=torch.float64)
            factor = 1 + (noise - 0.5) * (4 * self._size * STEP[dtype or x.dtype])
            with torch.no_grad():
                moved = x.detach().double() * factor
                # A probability is no larger than 1, nor is a sine.
                moved = torch.where(x.detach().abs() <= 1, moved.clamp(-1, 1), moved).to(x.dtype)
            try:
                torch.ops.aten.copy_.default(x.detach(), moved)
            except RuntimeError:  # several elements at one place
                pass
        return x


@contextlib.contextmanager
def _in_steps():
    """Leaves out what has one operation for many steps: for a recurrent layer, for attention."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)  # the public flags are closed once torch.testing is used
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def _perturbed(program: Program, first: int, count: int) -> list:
    """Runs of eager with other roundings."""
    world = WIDE if program.setting.wide else NARROW
    runs = []
    for i in range(first, first + count):
        torch.manual_seed(random.Random(i).randrange(2**31))
        # A moved rounding may leave what eager accepts, such as an argument of arcsin or an index.
        with _Perturbing(i, 1.0 + i % FACTOR), _in_steps(), contextlib.suppress(Exception):
            runs.append(eager(program, world))
    if not runs:
        raise Invalid("eager refuses the program with other roundings")
    return runs

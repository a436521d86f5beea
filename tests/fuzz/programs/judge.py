"""Whether a random program computes what PyTorch computes.

The reference is eager with all floats in float64. Eager's own error is the measure: with ``e`` the
largest error of eager in the program's dtypes, ours may be ``4 e`` plus a rounding of the dtype.
Where that is exceeded, the program is run again in eager with each arithmetic result moved by a few
roundings: what these runs differ by is how well the program determines its results at all, and
counts as eager's error, too. A comparison, an argmax or an integer that such a rounding turns
around says nothing. Where eager has no digit right, its error is known by its order of magnitude.
"""

import math
from dataclasses import dataclass

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from poptorch.errors import Error
from tests.fuzz.programs.perturbed import STEP, perturbed
from tests.fuzz.programs.program import NARROW, NATURAL, WIDE, Program
from tests.fuzz.programs.running import eager, through_poptorch
from tests.fuzz.programs.undetermined import is_undetermined, may_have_zero_path

FACTOR = 4.0
# Where eager's error is more than half of the largest number, that of a run in which it is nearly 0
# among others, it is known by its order of magnitude only.
ORDER = 1024.0
# What is by so much smaller than the largest number of a run may be 0 in the reference: so is
# 1 - tanh(x)^2 in float64 where it is below a rounding of 1.
SMALLEST = 2.0**-53
# Perturbed runs that a suspect is given; the second number only if the first are not enough.
RUNS = (4, 24)
NARROWED = {torch.int64: torch.int32, torch.float64: torch.float32}


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
        if "does not fit into int32" in str(error) and _passes_int32(program):
            raise Invalid("integers on the way that the device has not") from None
        kind = "broken" if "lease report" in str(error) else "refused"
        return Finding(kind, str(error), error)
    except Exception as error:
        return Finding("broken", f"{type(error).__name__}: {error}", error)
    finally:
        note(False)
    expected = reference if program.setting.wide else natural
    words = _types_differ(ours, expected, program.setting.wide)
    if sorted(ours) != sorted(expected) and may_have_zero_path(program):
        raise Invalid("gradients that are zeros or none by the transform, or by a value")
    if words:
        return Finding("wrong", words)
    finding = _judged(program, ours, near, reference)
    if finding is not None and is_undetermined(program):
        raise Invalid("what eager gives in some types, sizes or on some processors only")
    return finding


def _judged(program: Program, ours, near, reference) -> Finding | None:
    suspects = list(reference)
    variants = [near]
    smallest = SMALLEST * max(1.0, *map(_largest, reference.values()))
    for count in (0, *RUNS):
        if count:
            variants += _other_runs(program, len(variants), count)
        found = {name: _difference(name, ours[name], variants, reference[name], smallest,
                                   _is_trained(name, program))
                 for name in suspects}
        found = {name: words for name, words in found.items() if words}
        suspects = list(found)
        if not suspects:
            return None
    if _diverges(variants, reference, bool(program.loss)):
        raise Invalid("training in which no digit is determined")
    return Finding("wrong", "\n".join(found.values()))


def _other_runs(program: Program, first: int, count: int) -> list:
    runs = perturbed(program, first, count)
    if not runs:
        raise Invalid("eager refuses the program with other roundings")
    return runs


def _diverges(variants: list, reference, is_training: bool) -> bool:
    """Whether runs of eager differ by more than the largest number that training comes to, or
    come to no number where the reference does: also on the way there, beyond single precision,
    from where on infinities of other signs may meet."""
    trained = [name for name, x in reference.items()
               if name.startswith(("gradient", "state")) and x.is_floating_point()]
    size = max((_largest(reference[name]) for name in trained), default=0.0)
    on_the_way = [name for name, x in variants[0].items()
                  if is_training and "result" in name and x.dtype in (torch.float32, torch.float64)]

    def is_lost(run, name) -> bool:
        known = reference[name].isfinite()
        return bool((known & ~run[name].isfinite()).any())

    def is_far(run, name) -> bool:
        return is_lost(run, name) \
            or _largest(run[name].double() - reference[name].double()) > size

    return any(is_far(run, name) for run in variants for name in trained) \
        or any(is_lost(run, name) for run in variants for name in on_the_way)


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
    return error <= _roundings(near.dtype, sizes[1]) + smallest


def _roundings(dtype: torch.dtype, size: float) -> float:
    """Two of the type that eager computes in, of numbers of this size; below the normal ones they
    are no smaller than the type's smallest number."""
    info = torch.finfo(dtype)
    return 2 * max(STEP[dtype] * size, info.smallest_normal * info.eps)


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
        limit = (ORDER if own > size / 2 else FACTOR) * own + smallest
        limit += _roundings(near[0].dtype, size)
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

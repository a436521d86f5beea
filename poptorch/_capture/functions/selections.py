"""What a mask selects: how many elements is only known when the program runs.

    part = x[mask]                      %full = where(%mask, %x, 1)
    part = part.sqrt() * 2       =>     %full = mul(sqrt(%full), 2)
    x[mask] = part                      %x = where(%mask, %full, %x)

Operations on single elements are computed for all of them. Where the mask is false they get ones,
so that what they give there is in no result and, as ``where`` chooses in both directions, in no
gradient.
"""

import functools
import inspect

import torch
import torch.nn.functional as F

from poptorch._base.torch_private import tracing as private
from poptorch._capture.graph.constant_values import changed_memory, same_value
from poptorch._capture.graph.unknown_sizes import UnknownSize

aten = torch.ops.aten

# Python's operators by the names of operations.
_OPERATORS = {"truediv": "div", "floordiv": "floor_divide", "mod": "remainder",
              "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
              "invert": "bitwise_not", "lshift": "bitwise_left_shift",
              "rshift": "bitwise_right_shift"}
_SAME_ELEMENTS = {"to", "type", "type_as", "float", "double", "half", "bfloat16", "bool", "int",
                  "long", "clone", "contiguous", "detach"}
# Functions of several forms, by how many arguments the one has that works on single elements.
_FORMS = {"where": 3, "max": 2, "min": 2}
_LOSSES_OF_ELEMENTS = {F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss,
                       F.binary_cross_entropy, F.binary_cross_entropy_with_logits}
_LOSSES_OF_CLASSES = {F.cross_entropy, F.nll_loss}
_QUESTIONS = {"dim", "is_floating_point", "is_complex"}
_ATTRIBUTES = {"dtype", "device", "requires_grad", "ndim", "is_leaf", "layout"}


class Mask:
    """A mask by which something was read: a tensor of bools or bytes."""

    def __init__(self, capture, index: torch.Tensor):
        self._node = capture.recorder.node_of(index)
        self.value = index.bool().clone()
        self._read = capture.recorder.node_of(self.value)

    def is_same(self, other: "Mask") -> bool:
        """Whether both certainly had the same values when they were read."""
        if self is other:
            return True
        nodes = self._node, other._node
        if len({node.graph for node in (*nodes, self._read, other._read)}) > 1:
            return False
        since = min(self._read, other._read) if nodes[0] is nodes[1] else min(nodes)
        return same_value(*nodes, changed_memory(since.graph, since))

    def beside(self, behind: int) -> torch.Tensor:
        """The mask with dimensions of size 1 behind its own."""
        return self.value.reshape(*self.value.shape, *[1] * behind)


class Selection(UnknownSize):
    """``x[mask]``.

    ``full`` has the dimensions of ``mask`` in the place of the one that counts what is selected,
    and ``behind`` dimensions that follow. It was read at ``made_at``: the user's place, the module.
    """

    def call(self, capture, func, args, kwargs):
        name, _ = _name(func)
        if self.is_of_function():
            raise self.refusal(func)
        if name == "__get__":
            attribute = func.__self__.__name__
            if attribute not in _ATTRIBUTES:
                raise self.refusal(func)
            return self._dims() if attribute == "ndim" else getattr(self.full, attribute)
        if name in _QUESTIONS:
            return self._dims() if name == "dim" else func(self.full)
        if name in ("sum", "mean") and not _has_dims(args, kwargs) and self is args[0]:
            return self._reduced(name, **kwargs)
        if func in _LOSSES_OF_ELEMENTS or func in _LOSSES_OF_CLASSES:
            return self._loss(func, args, kwargs)
        if name in _SAME_ELEMENTS:
            if len([a for a in args if isinstance(a, UnknownSize)]) != 1 or self is not args[0]:
                raise self.refusal(func)
            return self._with(func(self.full, *args[1:], **kwargs))
        if not _is_of_elements(func, name) or kwargs.get("out") is not None \
                or kwargs.get("inplace") or len(args) + len(kwargs) < _FORMS.get(name, 0) \
                or name in ("max", "min") and not isinstance(args[-1], torch.Tensor):
            raise self.refusal(func)
        return self._elementwise(func, args, kwargs)

    def fits(self, capture, index: torch.Tensor, behind: int) -> bool:
        """Whether it is what that mask selects of a tensor with ``behind`` more dimensions."""
        return not self.is_of_function() and self.behind == behind \
            and self.mask.is_same(Mask(capture, index))

    def _dims(self) -> int:
        return self.full.dim() - self.mask.value.dim() + 1

    def _with(self, full):
        return Selection.make(full.requires_grad, full=full, mask=self.mask, behind=self.behind,
                              made_at=self.made_at)

    def _reduced(self, name: str, dtype=None):
        if name == "mean":
            self.full.mean(dtype=dtype)  # refuses the types that PyTorch refuses
        dtype = dtype or (self.full.dtype if self.full.is_floating_point() else torch.int64)
        mask = self.mask.beside(self.behind)
        total = torch.where(mask, self.full, 0)
        if name == "sum":
            return total.sum(dtype=dtype)
        wide = torch.promote_types(dtype, torch.float32)
        return (total.sum(dtype=wide) / mask.expand_as(total).sum()).to(dtype)

    def _loss(self, func, args, kwargs):
        given = inspect.signature(func).bind(*args, **kwargs)
        given.apply_defaults()
        named = given.arguments
        if named.pop("size_average", None) is not None or named.pop("reduce", None) is not None \
                or named["reduction"] not in ("mean", "sum"):
            raise self.refusal(func)
        if func in _LOSSES_OF_CLASSES:
            return self._loss_of_classes(func, **named)
        reduction, named["reduction"] = named["reduction"], "none"
        return self._elementwise(func, (), named)._reduced(reduction)

    def _loss_of_classes(self, func, input, target, ignore_index, **options):
        """Places where the mask is false have the label that is ignored."""
        self._check_same(func, (input, target), of_one_size=False)
        mask = self.mask.value
        if not isinstance(input, Selection) or not isinstance(target, Selection) \
                or input.full.dim() != mask.dim() + 1 or target.full.dim() != mask.dim() \
                or input.behind != 1 or target.full.is_floating_point():
            raise self.refusal(func)
        labels = torch.where(mask, target.full, ignore_index)
        return func(input.full.flatten(0, -2), labels.flatten(), ignore_index=ignore_index,
                    **options)

    def _check_same(self, func, values, of_one_size: bool = True) -> None:
        """Raises the refusal unless all selections are by the mask of this one."""
        if any(isinstance(value, UnknownSize) and not (
                isinstance(value, Selection) and not value.is_of_function()
                and (value.behind == self.behind or not of_one_size)
                and value.mask.is_same(self.mask))
               for value in values):
            raise self.refusal(func)

    def _elementwise(self, func, args, kwargs):
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        self._check_same(func, tensors)
        # A gradient of one number adds up what all places give.
        again = any(not isinstance(t, UnknownSize) and t.dim() == 0 and t.requires_grad
                    for t in tensors)
        changed = args[0] if _name(func)[1] else None
        if again and isinstance(changed, Selection):
            changed.full.copy_(_or_ones(changed.mask.beside(self.behind), changed.full))

        def whole(value):
            return self._whole(func, again and value is not changed, value)

        out = func(*map(whole, args), **{key: whole(value) for key, value in kwargs.items()})
        if not isinstance(out, torch.Tensor):
            raise self.refusal(func)
        if again:  # what comes back where the mask is false is no part of that gradient
            chosen = _or_ones(self.mask.beside(self.behind), out)
            out = out.copy_(chosen) if changed is not None else chosen
        return changed if changed is not None else self._with(out)

    def _whole(self, func, again: bool, value):
        """An operand for all places of the mask."""
        mask = self.mask.beside(self.behind)
        if isinstance(value, Selection):
            return _or_ones(mask, value.full) if again else value.full
        if not isinstance(value, torch.Tensor) or value.dim() == 0:
            return value
        at = value.dim() - 1 - self.behind
        if at >= 0:
            if value.shape[at] != 1:
                raise self.refusal(func)
            dims = self.mask.value.dim()
            value = value.reshape(*value.shape[:at], *[1] * dims, *value.shape[at + 1:])
        return _or_ones(mask, value) if value.requires_grad else value


def _or_ones(mask, x):
    # With the number 1, bools would become integers.
    return torch.where(mask, x, True if x.dtype is torch.bool else 1)


def selected(capture, view, index, before: int) -> Selection:
    """What a mask selects of ``view``, whose dimensions from ``before`` on are those of the mask.
    """
    mask = Mask(capture, index)
    behind = view.dim() - before - index.dim()
    full = _or_ones(mask.beside(behind), view)
    return Selection.make(full.requires_grad, full=full, mask=mask, behind=behind,
                          made_at=(capture.recorder.places.here(), capture.recorder.module))


def _name(func) -> tuple[str, bool]:
    """The name of a function or operator, and whether it works in place, which the name leaves
    out."""
    name = getattr(func, "__name__", "").partition(".")[0]
    if not name.startswith("__") or name == "__get__":
        is_in_place = name.endswith("_") and name != "__get__"
        return name[:-1] if is_in_place else name, is_in_place
    name, short = name.strip("_"), name.strip("_")[1:]
    is_in_place = name.startswith("i") and name != "invert"
    if name[:1] in ("i", "r") and name not in ("invert", "rshift") \
            and (short in _OPERATORS or hasattr(aten, short)):
        name = short
    return _OPERATORS.get(name, name), is_in_place


@functools.cache
def _is_of_elements(func, name: str) -> bool:
    """Whether each element of the result follows from the elements at its place."""
    module = getattr(func, "__module__", None) or ""
    if not (module.startswith("torch") or isinstance(func, private.OpOverload)
            or hasattr(torch.Tensor, func.__name__) or hasattr(torch, func.__name__)):
        return False
    packet = None if name in ("equal", "rrelu") else getattr(aten, name, None)
    tags = [] if packet is None else [getattr(packet, form).tags for form in packet.overloads()]
    return any(torch.Tag.pointwise in tag for tag in tags) \
        and not any(torch.Tag.nondeterministic_seeded in tag for tag in tags)


def _has_dims(args, kwargs) -> bool:
    return len(args) > 1 or bool(kwargs.keys() - {"dtype"})

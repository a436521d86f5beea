"""``as_strided`` and its kin: operations that see the memory of a tensor and not its values.

Where a tensor fills its memory without gaps, views of it give that memory as a tensor of one
dimension::

    as_strided(x.t()[1:], [3], [1], 2)   =>   elements(view(x, [n]), [3], [1], 2)
"""

import math

import numpy
import torch

from poptorch._base import layout
from poptorch._capture.graph import views
from poptorch._capture.library.layers import ops

aten = torch.ops.aten


class Memory:
    """Records, for a :class:`Recorder`, operations on the memory of tensors."""

    def __init__(self, recorder):
        self._recorder = recorder
        self.handlers = {
            aten.as_strided.default: self._as_strided,
            aten.as_strided_.default: self._as_strided_in_place,
            aten.as_strided_copy.default: self._as_strided_copy,
            aten.as_strided_scatter.default: self._as_strided_scatter,
            aten.resize_.default: self._resize,
            aten.set_.source_Tensor: self._refuse_set,
            aten.set_.source_Storage: self._refuse_set,
            aten.set_.source_Storage_storage_offset: self._refuse_set,
        }

    # -- handlers ------------------------------------------------------------------------------

    def _as_strided(self, func, args, kwargs):
        return self._strided(*_window(*args, **kwargs))

    def _as_strided_copy(self, func, args, kwargs):
        return self._recorder.run(aten.clone.default, self._strided(*_window(*args, **kwargs)))

    def _as_strided_in_place(self, func, args, kwargs):
        tensor, size, stride, offset = _window(*args, **kwargs)
        return self._become(tensor, func, size, stride, offset)

    def _as_strided_scatter(self, func, args, kwargs):
        tensor, size, stride, offset = _window(args[0], *args[2:], **kwargs)
        with self._recorder:
            out = tensor.clone()
            out.as_strided(size, stride, offset - tensor.storage_offset()).copy_(args[1])
        return out

    def _resize(self, func, args, kwargs):
        tensor, size = args
        form = kwargs.get("memory_format") or torch.contiguous_format
        stride = torch.empty(size, device="meta", memory_format=form).stride()
        if math.prod(size) > tensor.untyped_storage().nbytes() // tensor.itemsize:
            raise self._recorder.error(
                f"[capture] resize_ enlarges a tensor from {list(tensor.shape)} to {list(size)}, "
                f"and its new elements have no values. Make a tensor of that shape, for instance "
                f"by torch.zeros, and copy what is known into it.")
        return self._become(tensor, func, size, stride, tensor.storage_offset())

    def _refuse_set(self, func, args, kwargs):
        raise self._recorder.error(
            "[capture] forward gives a tensor the memory of another tensor or of a storage "
            "(Tensor.set_). Make a view of the tensor that the memory belongs to, for instance by "
            "as_strided, or copy the values: `x.copy_(value)`.")

    # -- shared by all views --------------------------------------------------------------------

    def _strided(self, tensor, size, stride, offset):
        """The view of the memory of ``tensor``; ``offset`` counts from its beginning."""
        tensor = self._recorder.fake(tensor)
        flat, first = self._flat(tensor)
        where = size, stride, offset - first
        self._check(tensor, flat, *where)
        out = aten.as_strided.default(flat, size, stride, offset)
        node = self._recorder.add(
            ops.elements.default, (self._recorder.node_of(flat), *where), {}, out)
        if tensor.numel() < flat.numel():
            own = layout.positions(tensor.size(), tensor.stride(), tensor.storage_offset())
            used = layout.positions(size, stride, offset)
            node.meta["is_beyond"] = not numpy.isin(used, own).all()
        return out

    def _become(self, tensor, func, size, stride, offset):
        """``tensor`` itself becomes another view of its memory."""
        recorder = self._recorder
        recorder.shapes.check(tensor, func)
        node = recorder.node_of(self._strided(recorder.shapes.shadow(tensor), size, stride, offset))
        out = aten.as_strided_.default(tensor, size, stride, offset)
        recorder.shapes.rename(tensor, node)
        return out

    def _flat(self, tensor):
        """The memory of ``tensor`` as a tensor of one dimension and of its type, and the place
        where that begins, in elements."""
        recorder = self._recorder
        root = views.root_of(recorder.node_of(tensor))
        if "picked_from" in root.meta:
            raise recorder.error(
                "[capture] the memory of an element x[i] is used (as_strided), where i is an "
                "integer tensor without dimensions: where it begins is not known. Use a copy of "
                "it (.clone()).")
        owner = recorder.value_of(root)
        recorder.layouts.note_places()
        for dim in layout.expanded_dims(owner):
            owner = recorder.run(aten.slice.Tensor, owner, dim, 0, 1, 1)
        dims = layout.dims_in_memory(owner)
        if dims is None:
            raise recorder.error(
                f"[capture] the memory of a tensor is used (as_strided), which has the sizes "
                f"{list(owner.shape)} and strides {list(owner.stride())}: a compiled program has "
                f"its elements, but not what lies between them or where they lie on each other. "
                f"{_advice(root)}")
        flat = layout.flat(recorder.run, owner, dims)
        if tensor.dtype != flat.dtype:
            flat = recorder.run(aten.view.dtype, flat, tensor.dtype)
        if tensor.is_neg() != flat.is_neg():
            flat = recorder.run(aten._neg_view.default, flat)
        return flat, flat.storage_offset()

    def _check(self, tensor, flat, size, stride, offset) -> None:
        """Checks that all the places are in the tensor's memory."""
        if 0 in size:
            return
        last = offset + sum((n - 1) * step for n, step in zip(size, stride))
        if offset < 0 or last >= flat.numel():
            root = views.root_of(self._recorder.node_of(tensor))
            raise self._recorder.error(
                f"[capture] as_strided with sizes {list(size)} and strides {list(stride)} uses "
                f"the elements {offset} to {last} of the memory of a tensor of {flat.numel()} "
                f"elements. {_advice(root)}")


def _advice(root) -> str:
    if root.op == "placeholder":
        return ("The program is given the elements of its inputs alone, not the memory around "
                "them: pass the whole tensor, or one that is contiguous().")
    return "Use a copy of it (.contiguous()), and what lies within."


def _window(tensor, size, stride, storage_offset=None):
    offset = tensor.storage_offset() if storage_offset is None else storage_offset
    return tensor, list(size), list(stride), offset

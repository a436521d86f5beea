"""The looks in C++ that each call begins with: what they tell, and what they keep alive."""

import gc
import weakref

import pytest
import torch

from poptorch import _C

WRITTEN, CONVERTED = _C.TensorWatch.WRITTEN, _C.TensorWatch.CONVERTED


def parameter():
    return torch.nn.Parameter(torch.zeros(4, 4))


def fill(tensor):
    with torch.no_grad():
        tensor.fill_(1)


def other_data(tensor):
    tensor.data = torch.zeros(4, 4)


def other_place(tensor):
    """In the same storage; the version stays as it is."""
    version = tensor._version
    tensor.data = tensor.data.t()
    assert tensor._version == version


def set_(tensor):
    with torch.no_grad():
        tensor.set_(torch.zeros(4, 4))


def swap(tensor):
    torch.utils.swap_tensors(tensor, parameter())


def half(tensor):
    tensor.data = tensor.data.half()


def resize(tensor):
    tensor.data = torch.zeros(2, 8)


TENSOR_CHANGES = {
    "fill": (fill, WRITTEN, WRITTEN), "data": (other_data, WRITTEN, WRITTEN),
    "place": (other_place, WRITTEN, WRITTEN), "swap": (swap, WRITTEN, WRITTEN),
    "set": (set_, WRITTEN, WRITTEN),
    "half": (half, WRITTEN | CONVERTED, WRITTEN | CONVERTED),
    "shape": (resize, WRITTEN | CONVERTED, WRITTEN | CONVERTED),
    "requires_grad": (lambda t: t.requires_grad_(False), 0, CONVERTED),
    "hook": (lambda t: t.register_hook(lambda grad: grad), 0, CONVERTED),
    "gradient": (lambda t: setattr(t, "grad", torch.ones(4, 4)), 0, 0),
    "nothing": (lambda t: t + 1, 0, 0),
}


@pytest.mark.parametrize("change", TENSOR_CHANGES)
def test_changes_of_a_tensor(change):
    apply, plainly, with_gradients = TENSOR_CHANGES[change]
    for has_gradients, expected in ((False, plainly), (True, with_gradients)):
        tensors = [parameter() for _ in range(3)]
        watch = _C.TensorWatch(tensors, has_gradients)
        apply(tensors[1])
        assert watch.look() == expected == watch.look()
        watch.note(CONVERTED)
        assert watch.look() == expected & WRITTEN
        watch.note(WRITTEN)
        assert watch.look() == 0


def test_tensors_of_inference_mode_have_no_versions():
    with torch.inference_mode():
        tensor = torch.zeros(2)
        watch = _C.TensorWatch([tensor], True)
        tensor.add_(1)
    assert watch.look() == 0


def test_only_tensors():
    with pytest.raises(RuntimeError, match="a tensor is expected"):
        _C.TensorWatch([1], False)


def test_the_storage_is_kept():
    tensor = parameter()
    storage, address = weakref.ref(tensor.untyped_storage()), tensor.data_ptr()
    watch = _C.TensorWatch([tensor], False)
    tensor.data = torch.ones(4, 4)
    assert storage() is not None and storage().data_ptr() == address
    assert watch.look() == WRITTEN
    watch.note(WRITTEN)
    assert storage() is None


class Key:
    """Equal to others, and not the same."""

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 1


def replace_key(table, items):
    del table["a"]
    table["a"] = 1


ITEM_CHANGES = {
    "value": lambda table, items: table.update(a=1.0),
    "key": lambda table, items: table.update(b=1),
    "order": replace_key,
    "removed": lambda table, items: table.clear(),
    "item": lambda table, items: items.__setitem__(1, Key()),
    "append": lambda table, items: items.append(1),
    "order of items": lambda table, items: items.reverse(),
    "place": lambda table, items: table["place"].update(x=2),
    "missing": lambda table, items: table["place"].update(y=None),
    "gone": lambda table, items: table["place"].pop("x"),
}


@pytest.mark.parametrize("change", ITEM_CHANGES)
def test_changes_of_items(change):
    items, place = [Key(), Key()], {"x": 1, "z": 1}
    table = {"a": 1, "place": place}
    watch = _C.ItemWatch([table, items], [(place, "x"), (place, "y")])
    place["z"] = 2
    assert watch.is_same()
    ITEM_CHANGES[change](table, items)
    assert not watch.is_same() and not watch.is_same()
    watch.note()
    assert watch.is_same()


def test_only_dicts_and_lists():
    with pytest.raises(RuntimeError, match="a dict or a list is expected"):
        _C.ItemWatch([(1, 2)])


def test_an_error_of_a_key_is_raised():
    class Broken:
        def __eq__(self, other):
            raise KeyError("broken")

        def __hash__(self):
            return hash("x")

    key = Broken()
    with pytest.raises(KeyError, match="broken"):
        _C.ItemWatch([], [({"x": 1}, key)])


def test_what_was_held_is_kept_until_it_is_noted():
    """Else another object could get its address."""
    items = [Key()]
    watch, held = _C.ItemWatch([items]), weakref.ref(items[0])
    items[0] = Key()
    assert held() is not None and not watch.is_same()
    watch.note()
    assert held() is None


def test_a_watch_that_is_part_of_what_it_watches_is_freed():
    for make in (lambda held: _C.ItemWatch([vars(held)], [(vars(held), "watch")]),
                 lambda held: _C.TensorWatch([held], True)):
        held = torch.nn.Parameter(torch.zeros(2))
        held.watch = make(held)
        if isinstance(held.watch, _C.ItemWatch):
            held.watch.note()
        reference = weakref.ref(held)
        del held
        gc.collect()
        assert reference() is None


def test_addresses():
    kind, x = _C.TensorKind(torch.float32, [4, 4]), torch.zeros(4, 4)
    weight = parameter()
    freed = torch.zeros(4, 4)
    freed.untyped_storage().resize_(0)
    complex_part = torch.zeros(4, 4, dtype=torch.complex64).conj().imag
    copied = [x.t(), x.double(), torch.zeros(4, 2), x.to("meta"), freed, complex_part,
              x._neg_view()]
    assert _C.addresses([kind, kind], [x, weight], True) == [x.data_ptr(), weight.data_ptr()]
    assert _C.addresses([kind], [weight], False) == [0]
    assert _C.addresses([kind] * len(copied), copied, True) == [0] * len(copied)
    x.set_(torch.ones(16), 0, (4, 4))  # another storage
    assert _C.addresses([kind], [x], False) == [x.data_ptr()]

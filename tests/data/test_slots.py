"""Items packed into memory that processes share."""

import multiprocessing
import os

import pytest
import torch

from poptorch.data import _slots
from poptorch.data._slots import ALIGNMENT_BYTES, Slot, pack, unpack, views


def test_pack_and_unpack():
    x = torch.arange(24).reshape(4, 6)
    item = {"x": x, "view": [x.t()[1:], "word"], "empty": torch.empty(0, 2), "same": x}
    packed = pack(item)
    assert len(packed.tensors) == 3 and all(o % ALIGNMENT_BYTES == 0 for *_, o in packed.layout)
    slot, fd = Slot.make(packed.nbytes)
    slot.fill(packed)
    other = Slot(fd, slot.nbytes)
    os.close(fd)
    got = unpack(packed.rest, views(other, packed.layout))
    assert got["x"].equal(x) and got["view"][0].equal(x.t()[1:]) and got["view"][1] == "word"
    assert got["same"] is got["x"] and got["empty"].shape == (0, 2)
    got["x"].zero_()  # one memory, two mappings
    assert views(slot, packed.layout)[0].eq(0).all()


def test_memory_in_use():
    slot, fd = Slot.make(100)
    os.close(fd)
    assert slot.nbytes % 4096 == 0 and not slot.is_in_use()
    part = views(slot, ((torch.float32, (5, 2), (2, 1), 64),))[0][1:3].t()
    assert slot.is_in_use()
    part.fill_(3)
    array = part.numpy()
    del slot, part
    assert (array == 3).all()  # the memory lives as long as what lies in it


def test_items_without_tensors_need_no_memory():
    packed = pack(["a", 1])
    assert packed.nbytes == 0 and unpack(packed.rest, views(None, packed.layout)) == ["a", 1]


def test_strides_stay():
    """As a copy by pickle has them: those of what lies dense in memory."""
    x = torch.arange(48).reshape(2, 3, 2, 4)
    item = [x.t() if x.dim() == 2 else x.mT, x.contiguous(memory_format=torch.channels_last),
            x[:, 1:], x[:1].expand(2, 3, 2, 4), torch.empty(0, 3).t()]
    packed = pack(item)
    slot, fd = Slot.make(packed.nbytes)
    os.close(fd)
    slot.fill(packed)
    for got, given in zip(unpack(packed.rest, views(slot, packed.layout)), item):
        assert got.equal(given) and got.stride() == given.clone().stride()


def test_descriptors_need_no_answer():
    ours, theirs = multiprocessing.Pipe()
    slot, fd = Slot.make(64)
    _slots.send_descriptor(ours, fd)
    received = _slots.receive_descriptor(theirs)
    assert os.fstat(received).st_ino == os.fstat(fd).st_ino and not ours.poll(0)
    for one in (fd, received):
        os.close(one)
    ours.close()
    with pytest.raises(EOFError):
        _slots.receive_descriptor(theirs)
    theirs.close()

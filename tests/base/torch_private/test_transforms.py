"""Transformations and tracing of torch that a capture meets."""

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from poptorch._base.torch_private import tracing as private


def test_transforms_are_left():
    def function(x):
        assert private.is_transformed() and private.is_traced() is False
        plain = private.without_transforms(x)
        with private.without_function_transforms():
            assert not private.is_transformed() and plain.shape == (2, 3)
        return x

    torch.vmap(function)(torch.ones(2, 3))


def test_tracing_is_noticed():
    traced = []
    make_fx(lambda x: traced.append(private.is_traced()) or x + 1)(torch.ones(2))
    assert traced == [True] and not private.is_traced()


def test_rows_of_padding_are_zero(monkeypatch):
    # Eager's nested tensors are not made here: the zeros are of the substitute.
    monkeypatch.setattr(torch, "_nested_tensor_from_mask_left_aligned", lambda *_: False)
    layer = torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 1).eval()
    ignored = torch.tensor([[False, False, True]])
    with torch.no_grad(), private.padding_as_nested():
        found = encoder(torch.ones(1, 3, 4), src_key_padding_mask=ignored)
    assert (found[0, 2] == 0).all() and (found[0, :2] != 0).any()

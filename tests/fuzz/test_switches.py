"""Any subset of optimizations turned off: no error, and the same numbers."""

import functools
import os
from unittest import mock

import torch
from hypothesis import given
from hypothesis import strategies as st

import poptorch
from poptorch import _C
from tests.fuzz.judge import budget
from tests.helpers import check_equal_bits, check_narrow, check_wide
from tests.networks import harness
from tests.networks.zoo import NETWORKS, build

NAMES = [name for name, doc in (*_C.passes(), *_C.switches())]
# These move data or say where it lies; no number is computed in another way.
EXACT = ["direct_streams", "blocked_upcast", "in_place", "inplace", "alap_gradients",
         "planned_calls", "rematerialize_batch_norm", "rematerialize_elementwise", "share_weights"]

subsets = st.one_of(
    st.sets(st.sampled_from(NAMES)),
    st.sets(st.sampled_from(NAMES), max_size=2),
    st.sets(st.sampled_from(EXACT), min_size=1),
    st.just(NAMES)).map(sorted)


def off(names):
    """Without the optimizations of these names."""
    return mock.patch.dict(os.environ, POPTORCH_OFF=",".join(names))


@functools.lru_cache
def network(name, seed):
    return build(name, seed)


@functools.lru_cache
def batches(name, seed, dtype):
    return network(name, seed).batches(1, seed, dtype)


@functools.lru_cache
def in_eager(name, seed, training):
    """Results of PyTorch: several in float32, and one in float64."""
    net = network(name, seed)
    narrow, wide = (batches(name, seed, dtype) for dtype in (torch.float32, torch.float64))
    function = harness.gradients_eager if training else harness.infer_eager
    if training:
        narrow, wide = narrow[0], wide[0]
    return (harness.eager_variants(function, net, narrow), function(net.to(torch.float64), wide))


def ours(net, data, training):
    return harness.gradients_after_one_step(net, data[0]) if training else harness.infer(net, data)


@functools.lru_cache
def with_all(name, seed, training):
    return ours(network(name, seed), batches(name, seed, torch.float32), training)


@budget(5)
@given(st.sampled_from(sorted(NETWORKS)), subsets, st.booleans(), st.booleans(),
       st.integers(0, 3))
def test_subsets(name, names, training, is_wide, seed):
    net = network(name, seed)
    eager32, reference = in_eager(name, seed, training)
    if is_wide:
        with poptorch.testing.wide(), off(names):
            result = ours(net.to(torch.float64), batches(name, seed, torch.float64), training)
        check_wide(result, reference)
        return
    with off(names):
        result = ours(net, batches(name, seed, torch.float32), training)
    check_narrow(result, eager32, reference)
    if set(names) <= set(EXACT):
        check_equal_bits(result, with_all(name, seed, training))

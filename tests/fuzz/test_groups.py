"""Replicas in groups that share inputs, and objects of the user's classes."""

import torch
from hypothesis import given
from hypothesis import strategies as st

import poptorch
from tests.fuzz.judge import attempt, budget
from tests.helpers import quiet_options


class Pack:
    """Holds two tensors."""

    def __init__(self, left, right):
        self.left, self.right = left, right


class PackParser(poptorch.ICustomArgParser):
    def yieldTensors(self, struct):
        yield struct.left
        yield struct.right

    def reconstruct(self, original_structure, tensor_iterator):
        return Pack(next(tensor_iterator), next(tensor_iterator))


poptorch.registerCustomArgParser(Pack, PackParser())


class Swap(torch.nn.Module):
    """Exchanges the parts of a pack."""

    def forward(self, pack, others=()):
        return Pack(pack.right * 1, pack.left * 1), [other.left + other.right for other in others]


GROUPS = [poptorch.CommGroupType.Consecutive, poptorch.CommGroupType.Orthogonal]


@budget(75)
@given(iterations=st.integers(1, 3), replicas=st.sampled_from([1, 2, 4]),
       size=st.sampled_from([1, 1, 2, 3, 4]), kind=st.sampled_from(GROUPS),
       rows=st.integers(1, 12), others=st.integers(0, 2))
def test_packs_for_groups(iterations, replicas, size, kind, rows, others):
    options = quiet_options(deviceIterations=iterations, replicationFactor=replicas)
    _, error = attempt(options.inputReplicaGrouping, size, kind)
    assert error is None
    model, error = attempt(poptorch.inferenceModel, Swap(), options)
    if replicas % size:
        assert "do not divide" in str(error)
        return
    left, right = torch.randn(rows, 2), torch.randint(-3, 3, (rows,), dtype=torch.int32)
    packs = [Pack(torch.randn(rows), torch.randn(rows)) for _ in range(others)]
    result, error = attempt(model, Pack(left, right), packs)
    groups = replicas // size
    if rows % (iterations * groups):
        assert isinstance(error, poptorch.Error) and str(iterations * groups) in str(error)
        return
    assert error is None, error

    def spread(tensor):
        """What the replicas return of it: each the slice of its group, step by step."""
        steps = tensor.unflatten(0, (iterations, groups, -1))
        is_neighbor = kind is poptorch.CommGroupType.Consecutive
        of = [r // size if is_neighbor else r % groups for r in range(replicas)]
        return steps[:, of].flatten(0, 2)

    swapped, sums = result
    assert type(swapped) is Pack
    assert torch.equal(swapped.left, spread(right)) and torch.equal(swapped.right, spread(left))
    assert len(sums) == others
    for ours, pack in zip(sums, packs):
        assert torch.equal(ours, spread(pack.left + pack.right))

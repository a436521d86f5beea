"""The same bits: in every run of one setting; `deterministic`: for any number of threads."""

import functools
import json

import pytest
import torch

import poptorch
from poptorch import _C
from tests.helpers import check_equal_bits, quiet_options, run_python
from tests.run.determined import Large


@functools.lru_cache
def digests(threads, deterministic, offset=0):
    """What a process of its own computes, see determined.py."""
    call = f"determined.main({threads}, {deterministic}, {offset})"
    return json.loads(run_python(f"from tests.run import determined; {call}"))


@pytest.mark.sampled
def test_every_run_gives_the_same_bits():
    """For any address of the arguments."""
    assert digests(2, False) == digests(2, False, 1)


@pytest.mark.sampled
@pytest.mark.parametrize("threads", [2, 3, 4])
def test_any_number_of_threads_gives_the_same_bits(threads):
    assert digests(threads, True) == digests(1, True)


@pytest.mark.sampled
def test_one_thread_computes_the_same_with_and_without_the_option():
    assert digests(1, True) == digests(1, False)


def test_the_threads_that_a_program_is_compiled_for_do_not_matter():
    torch.manual_seed(0)
    net = Large().eval()
    args = torch.randn(6, 3, 40, 40), torch.randint(0, 50, (6, 9)), torch.randint(0, 5, (6,))
    results, before = [], torch.get_num_threads()
    try:
        for compiled, run in ((1, 1), (4, 1), (4, 3)):
            torch.set_num_threads(compiled)
            model = poptorch.inferenceModel(net, quiet_options(deterministic=True))
            model.compile(*args)
            torch.set_num_threads(run)
            results.append(model(*args))
    finally:
        torch.set_num_threads(before)
    check_equal_bits(results[1:], [results[0]] * 2)


class Volume(torch.nn.Module):
    """The gradient of its weight is oneDNN's, which sums by the number of threads."""

    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv3d(8, 16, 3, padding=1)

    def forward(self, x):
        return poptorch.identity_loss((self.convolution(x) ** 2).mean(), "none")


def test_convolutions_of_onednn():
    torch.manual_seed(0)
    net, x, before = Volume(), torch.randn(2, 8, 8, 16, 16), torch.get_num_threads()
    optimizer, found = torch.optim.SGD(net.parameters(), lr=0.0), []
    try:
        for threads in (1, 2, 3, 4):
            torch.set_num_threads(threads)
            with poptorch.testing.keep_gradients():
                model = poptorch.trainingModel(net, quiet_options(deterministic=True), optimizer)
                model(x)
            found.append(poptorch.testing.gradients(model))
            model.destroy()
    finally:
        torch.set_num_threads(before)
    check_equal_bits(found[1:], found[:1] * 3)


def test_the_option_is_a_switch():
    """What it turns off has a row, so that POPTORCH_OFF does the same for programs as they are."""
    assert "torch_threads" in dict(_C.switches())

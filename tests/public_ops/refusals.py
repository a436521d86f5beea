"""What is refused in the same words in a program and outside of one."""

import pytest
import torch

import poptorch
from tests.helpers import quiet_options


def check_refused(call, words, is_compiled):
    """Whether ``call()`` within ``forward`` is an error that says ``words``."""
    class Net(torch.nn.Module):
        def forward(self, x):
            call()
            return x

    run = poptorch.inferenceModel(Net(), quiet_options()) if is_compiled else Net()
    with pytest.raises(poptorch.Error, match=words):
        run(torch.zeros(1))

"""References run on one thread: their own parallelism costs more than it saves here."""

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread(clean_state):
    """``clean_state`` puts the number back."""
    torch.set_num_threads(1)

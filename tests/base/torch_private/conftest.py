"""What the tests of this folder share."""

import pytest

from poptorch._base.torch_private import fake_tensors


@pytest.fixture
def mode():
    """A new mode of fake tensors."""
    return fake_tensors.new_fake_mode()

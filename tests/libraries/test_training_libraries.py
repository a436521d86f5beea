"""The examples of docs/guide/training/training_libraries.md.

They train a network, and generate words.
"""

import re

import pytest

from tests.helpers import ROOT, run_python
from tests.libraries.__main__ import FOLDER

START = """
import sys, warnings
sys.path.append({folder!r})
warnings.simplefilter("ignore")
from tests.libraries.images import torchvision
torchvision()  # the other libraries try to import it
"""
END = """
for trained in (net, classifier.net, lightning.net):
    assert (trained(x).argmax(1) == target).float().mean() > 0.95
assert trainer.callback_metrics["accuracy"] > 0.95
expected = language.generate(prompt, max_new_tokens=6, do_sample=False, pad_token_id=0)
assert torch.equal(words, expected)
assert torch.equal(torch.cat([prompt, *tokens], dim=1), expected) and len(step.programs()) == 1
assert abs(trainer.optimizers[0].param_groups[0]["lr"] - 0.005) < 1e-9
"""


@pytest.mark.slow
@pytest.mark.skipif(not (FOLDER / "pytorch_lightning").exists(), reason="make libraries")
def test_the_guide():
    page = (ROOT / "docs" / "guide" / "training" / "training_libraries.md").read_text()
    code = "".join(re.findall(r"```py\n(.*?)```", page, re.DOTALL))
    run_python(START.format(folder=str(FOLDER)) + code + END, OMP_NUM_THREADS="1")

"""Compares models of the library transformers, small and with random weights, with eager.

``python -m tests.libraries`` computes the results of each model in inference, and its results,
loss, weights and buffers after a step of training, and judges them by the float32 rule of
``tests/helpers.py``. Models that cannot be compiled must be refused in the words that
``tests/libraries/models.py`` expects. ``python -m tests.libraries Llama`` takes the models whose
names have this in them. The exit status is 1 when one differs, or is refused in other words.
"""

import argparse
import contextlib
import logging
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from tqdm import tqdm

import poptorch
from tests.helpers import check_narrow, to_dtype
from tests.libraries.models import MODELS, REFUSED
from tests.networks import harness

# Where `make libraries` installs the library, in addition to the environment's packages.
FOLDER = Path(__file__).resolve().parents[2] / "build" / "libraries"


def main() -> int:
    """Judges the models, and prints a line for each that is not right, and a summary."""
    args = _arguments()
    chosen = [name for name in MODELS if not args.names or any(n in name for n in args.names)]
    if not chosen:
        sys.exit(f"[libraries] no model's name has {' or '.join(args.names)} in it. There are: "
                 f"{', '.join(MODELS)}.")
    wrong = 0
    with _the_library():
        for name in (bar := tqdm(chosen, unit="model")):
            bar.set_postfix_str(name)
            words = judged(MODELS[name].network, args.seed, REFUSED.get(name))
            if words:
                wrong += 1
                tqdm.write(f"{name}: {words}")
    print(f"{len(chosen)} models, {wrong} not as in eager; seed {args.seed}")
    return 1 if wrong else 0


@contextlib.contextmanager
def _the_library():
    """It can be imported, and what it warns of is not shown."""
    sys.path.append(str(FOLDER))
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)
        sys.path.remove(str(FOLDER))


def judged(build: Callable, seed: int, refusal: str | None = None) -> str:
    """What is wrong with a network, or nothing.

    Args:
        build: makes it.
        seed: of its weights and inputs.
        refusal: a part of the message by which it is to be refused; None: it is to work.
    """
    torch.manual_seed(seed)
    network = build()
    try:
        _check(network, seed)
    except poptorch.Error as error:
        message = str(error)
        return "" if refusal is not None and refusal in message else f"refused: {message}"
    except AssertionError as error:
        return str(error)
    return "" if refusal is None else f"it is computed, but was to be refused by {refusal!r}"


def _check(network, seed: int) -> None:
    wide = network.to(torch.float64)
    batches, wide_batches = (network.batches(1, seed, dtype)
                             for dtype in (torch.float32, torch.float64))
    for ours_of, eager_of in ((harness.infer, harness.infer_eager),
                              (harness.train, harness.train_eager)):
        eager = harness.eager_variants(eager_of, network, batches)
        try:
            reference = eager_of(wide, wide_batches)
        except RuntimeError:  # grouped products have no float64
            reference = to_dtype(eager[0], torch.float64)
        check_narrow(ours_of(network, batches), eager, reference)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.libraries", description=__doc__.partition("\n")[0],
        epilog="Example: python -m tests.libraries Bert Llama")
    parser.add_argument("names", nargs="*", metavar="NAME",
                        help="parts of names of models (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and inputs (default: 0)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

"""Compares models of libraries, small and with random weights, with eager.

``python -m tests.libraries`` computes the results of each model in inference, and its results,
loss, weights and buffers after a step of training, and judges them by the float32 rule of
``tests/helpers.py``. Models that cannot be compiled must be refused in the words that
``tests/libraries/models.py`` expects. ``python -m tests.libraries Llama`` takes the models whose
names have this in them. The exit status is 1 when one differs, or is refused in other words.
``--write`` also measures them, and writes ``docs/guide/porting/libraries.md``.
"""

import argparse
import contextlib
import copy
import logging
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from tqdm import tqdm

import poptorch
from tests.helpers import check_narrow, quiet_options, to_dtype
from tests.libraries import images, page
from tests.libraries.catalogue import MODELS, REFUSED
from tests.networks import harness

REPEATS = 5
# Where `make libraries` installs the libraries, in addition to the environment's packages.
FOLDER = Path(__file__).resolve().parents[2] / "build" / "libraries"


def main() -> int:
    """Judges the models, and prints a line for each that is not right, and a summary."""
    args = _arguments()
    chosen = [name for name in MODELS if not args.names or any(n in name for n in args.names)]
    if not chosen:
        sys.exit(f"[libraries] no model's name has {' or '.join(args.names)} in it. There are: "
                 f"{', '.join(MODELS)}.")
    wrong = 0
    with _the_libraries():
        for name in (bar := tqdm(chosen, unit="model")):
            bar.set_postfix_str(name)
            result, reason = outcome(MODELS[name].network, args.seed)
            if words := judged(result, reason, REFUSED.get(name)):
                wrong += 1
                tqdm.write(f"{name}: {words}")
            if args.write:
                page.store(name, {"result": result, "reason": reason, **(
                    measured(MODELS[name].network, args.seed) if result == "passes" else {})})
    if args.write:
        page.write()
    print(f"{len(chosen)} models, {wrong} not as in eager; seed {args.seed}")
    return 1 if wrong else 0


@contextlib.contextmanager
def _the_libraries():
    """They can be imported, and what they warn of is not shown."""
    sys.path.append(str(FOLDER))
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with contextlib.suppress(ImportError):
                images.torchvision()  # the others try to import it
            yield
    finally:
        logging.disable(logging.NOTSET)
        sys.path.remove(str(FOLDER))


def outcome(build: Callable, seed: int) -> tuple[str, str]:
    """``"passes"``, ``"refused"``, ``"differs"`` or ``"fails"``, and the reason.

    Args:
        build: makes the network.
        seed: of its weights and inputs.
    """
    torch.manual_seed(seed)
    network = build()
    try:
        _check(network, seed)
    except poptorch.Error as error:
        return "refused", str(error)
    except AssertionError as error:
        return "differs", str(error)
    except Exception as error:
        return "fails", f"{type(error).__name__}: {error}"
    return "passes", ""


def judged(result: str, reason: str, refusal: str | None = None) -> str:
    """What is wrong with an outcome, or nothing.

    Args:
        result: see :func:`outcome`.
        reason: likewise.
        refusal: a part of the message by which it is to be refused; None: it is to work.
    """
    if result == "passes":
        return "" if refusal is None else f"it is computed, but was to be refused by {refusal!r}"
    if result == "refused":
        return "" if refusal is not None and refusal in reason else f"refused: {reason}"
    return reason


def measured(build: Callable, seed: int) -> dict[str, float]:
    """The time of a training step in eager and by poptorch, and the share of opaque operations.

    On one thread: where several share their cores with other programs, those that wait spin.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    network = build()
    (inputs,), module = network.batches(1, seed), copy.deepcopy(network.module).train()
    eager, optimizer = network.module.train(), network.make_optimizer(list(module.parameters()))
    model = poptorch.trainingModel(module, quiet_options(), optimizer)
    own = network.make_optimizer(list(eager.parameters()))

    def step():
        own.zero_grad()
        eager(*inputs)[1].backward()
        own.step()

    times = {"eager_ms": [], "ours_ms": []}
    for _ in range(REPEATS):
        for name, run in (("eager_ms", step), ("ours_ms", lambda: model(*inputs))):
            begin = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - begin) * 1e3)
    torch.set_num_threads(threads)
    counts = poptorch.analyze(model, *inputs).counts
    model.destroy()
    return {**{name: min(found) for name, found in times.items()},
            "opaque": counts["opaque"] / sum(counts.values())}


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
    parser.add_argument("--write", action="store_true",
                        help="measure the models, and write docs/guide/porting/libraries.md")
    parser.add_argument("--seed", type=int, default=0, help="of weights and inputs (default: 0)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

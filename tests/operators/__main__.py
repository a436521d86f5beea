"""Compares the operators of PyTorch with eager, for the arguments that its own tests have.

``python -m tests.operators`` computes up to ten calls of each operator of ``op_db``, which is
private to PyTorch's tests, in inference, and the gradients of each that has some; and the results
once more with int32 tensors in the place of int64 ones, where there are some. Results are
judged by the float32 rule for one operator (``tests/helpers.py``); of random ones, which are not
eager's, only the shapes and types. What is refused must be refused in words of ``REFUSED``.
``python -m tests.operators sum linalg`` takes the operators whose names have one of these in them.
The exit status is 1 when one differs, or is refused in other words.

``--results FILE`` also appends what each operator and each module of ``module_db`` does to a file,
and leaves out those that the file has. :mod:`tests.operators.table` makes the page of the reference
of it.
"""

import argparse
import json
import re
import sys
import warnings
from collections import Counter
from pathlib import Path
from unittest import mock

import torch
from torch.utils import _pytree as pytree
from tqdm import tqdm

import poptorch
from poptorch import testing
from tests.fuzz.programs.perturbed import moved_runs
from tests.helpers import check_op_sample, quiet_options
from tests.operators.calls import Call, Calling, calls_of, torchs_samples

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
# The error of a result that any implementation may have, relative to the largest element.
ROUNDINGS = {torch.float32: 1e-6, torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6}

# What a compiled program of dense tensors cannot have, and what no public function of torch calls.
REFUSED = re.compile(
    "needs the value of a tensor|the shape of the result depends on the values|dense tensor"
    "|is not a type of the device|an unsigned number of 64 bits|has a tensor as a bound"
    "|the places at which it splits are a tensor"
    "|the lengths differ from call to call"
    # An index without elements, of a type that positions are not of.
    r"|the index is \w+\[(\d+,)*0\b.*positions are i32 or i64")
_MEMORY = re.compile("^(new_)?empty")  # with undefined values


def main() -> int:
    """Judges the calls, and prints a line for each that is not right, and a summary."""
    args = _arguments()
    with warnings.catch_warnings(), torchs_samples() as infos:
        warnings.simplefilter("ignore")
        chosen = [info for info in infos
                  if not args.names or any(name in info.formatted_name for name in args.names)]
        if not chosen:
            sys.exit(f"[operators] no operator's name has {' or '.join(args.names)} in it.")
        dtype, results = DTYPES[args.dtype], _Results(args.results)
        chosen = [info for info in chosen if not results.has(info, args.dtype)]
        counts = Counter()
        for info in (bar := tqdm(chosen, unit="operator", disable=None)):
            bar.set_postfix_str(info.formatted_name)
            found: dict[str, Counter] = {}
            reasons: list[str] = []
            for call in calls_of(info, args.seed, args.count, dtype):
                for way in _ways(call):
                    kind, words = judged(call, way == "gradients", args.seed, info.name,
                                         way == "results of int32", dtype)
                    counts[kind] += 1
                    found.setdefault(way, Counter())[kind] += 1
                    if kind == "wrong":
                        tqdm.write(f"{info.formatted_name}, {way} of {call}: {words}")
                    reasons += [words] if words else []
            results.add(info, args.dtype, found, reasons)
    print(f"{len(chosen)} operators: {counts['right']} calls as in eager, {counts['refused']} "
          f"refused, {counts['wrong']} wrong, {counts['not valid']} not valid in eager; "
          f"seed {args.seed}")
    return 1 if counts["wrong"] else 0


class _Results:
    """The file that has what each operator does in each type, or none."""

    def __init__(self, path: str | None):
        self._path = path and Path(path)
        lines = self._path.read_text().splitlines() if path and self._path.exists() else []
        self._known = {tuple(json.loads(line)["key"]) for line in lines}

    def has(self, info, dtype: str) -> bool:
        """Whether the file has an operator or a module in a type."""
        return tuple(_key(info, dtype)) in self._known

    def add(self, info, dtype: str, found: dict, reasons: list[str]) -> None:
        """Appends what was found of it, by the ways of calling it, with one reason."""
        if self._path is None:
            return
        line = {"key": _key(info, dtype), "found": found, "reason": reasons[:1]}
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def _key(info, dtype: str) -> list[str]:
    return ["module" if hasattr(info, "module_cls") else "operator", info.formatted_name, dtype]


def _ways(call: Call) -> list[str]:
    has_int64 = any(isinstance(x, torch.Tensor) and x.dtype is torch.int64
                    for x in pytree.tree_leaves(call.arguments))
    return ["results", *["gradients"] * call.is_differentiable, *["results of int32"] * has_int64]


def judged(call: Call, trained: bool, seed: int, name: str = "", int32: bool = False,
           dtype: torch.dtype = torch.float32) -> tuple[str, str]:
    """How a call does: ``right``, ``refused``, ``wrong`` or ``not valid`` in eager, and what is
    wrong with it.

    Args:
        call: the call.
        trained: whether its gradients are computed, not its results.
        seed: of random numbers.
        name: of the operator.
        int32: whether the device is given int32 in the place of int64.
        dtype: of the floating-point numbers.
    """
    try:
        eager, *others = (_of_eager(call, dtype, trained, seed + i) for i in range(4))
        wide = _of_eager(call, torch.float64, trained, seed)
    except Exception:  # noqa: BLE001  (any by which eager refuses it)
        return "not valid", ""
    try:
        ours = _of_device(call, dtype, trained, int32)
    except poptorch.Error as error:
        return ("refused" if REFUSED.search(str(error)) else "wrong"), f"refused: {error}"
    except Exception as error:  # noqa: BLE001  (none should come)
        return "wrong", f"{type(error).__name__}: {error}"
    is_random = _MEMORY.match(name) or any(any(map(_differ, eager, other)) for other in others)
    draws = [eager] if is_random else [
        eager, *moved_runs(lambda: _of_eager(call, dtype, trained, seed))]
    try:
        assert len(ours) == len(eager), f"{len(ours)} results, not {len(eager)}"
        for number, (found, exact, *narrow) in enumerate(zip(ours, wide, *draws, strict=True)):
            _check(f"result {number}", found, narrow, exact, is_random, ROUNDINGS[dtype])
    except AssertionError as error:
        return "wrong", str(error)
    return "right", ""


def _of_eager(call: Call, dtype: torch.dtype, trained: bool, seed: int) -> list:
    torch.manual_seed(seed)
    module = Calling(call, dtype, trained)
    with mock.patch.object(torch, "manual_seed"):  # which some of torch's functions call first
        out = module(*module.tensors)
    if trained:
        if out.requires_grad:
            out.backward()
        out = [weight.grad for weight in module.parameters()]
    return [x.to_dense() if isinstance(x, torch.Tensor) else x for x in pytree.tree_leaves(out)]


def _of_device(call: Call, dtype: torch.dtype, trained: bool, int32: bool) -> list:
    module = Calling(call, dtype, trained)
    if int32:
        module.tensors = [x.int() if x.dtype is torch.int64 else x for x in module.tensors]
    if not trained:
        model = poptorch.inferenceModel(module, quiet_options())
        results = pytree.tree_leaves(model(*module.tensors))
        model.destroy()
        return results
    with testing.keep_gradients():
        model = poptorch.trainingModel(module, quiet_options())
        model(*module.tensors)
        gradients = testing.gradients(model)
    model.destroy()
    return [gradients.get(name) for name, _ in module.named_parameters()]


def _differ(one, other) -> bool:
    if not isinstance(one, torch.Tensor):
        return one != other
    one, other = _real(one), _real(other)
    return one.shape != other.shape or not torch.equal(
        *(x.detach().nan_to_num() if x.is_floating_point() else x for x in (one, other)))


def _real(x: torch.Tensor) -> torch.Tensor:
    """A tensor of real numbers: the pairs of a complex one."""
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x


def _check(name: str, ours, draws: list, wide, is_random: bool, rounding: float) -> None:
    """``draws`` are eager's results; the first is unchanged."""
    eager = draws[0]
    if not isinstance(eager, torch.Tensor):  # a number, or no gradient
        assert ours is eager or ours == eager, f"{name}: {ours}, not {eager}"
        return
    assert isinstance(ours, torch.Tensor), f"{name}: {ours}, not a tensor"
    if is_random:
        assert ours.shape == eager.shape, f"{name}: {list(ours.shape)}, not {list(eager.shape)}"
        assert ours.is_floating_point() == eager.is_floating_point(), f"{name}: {ours.dtype}"
        return
    draws, (ours, wide) = [_real(x.detach()) for x in draws], (_real(ours), _real(wide))
    eager = draws[0]
    if eager.is_floating_point():
        draws, ours, wide = _within_range(draws, ours, wide)
        eager = draws[0]
        same = [x for x in draws if x.shape == eager.shape
                and torch.equal(x.isfinite(), eager.isfinite())]
        ours, wide, eager = *(torch.stack([x] * len(same)) for x in (ours, wide)), torch.stack(same)
    check_op_sample(ours.detach(), eager, wide.detach(), name, rounding)


def _within_range(draws: list, ours, wide) -> tuple:
    """The results without the elements that 16 bits do not hold, where eager has no number."""
    beyond = wide.isfinite() & ~draws[0].isfinite()
    if ours.shape != wide.shape or not beyond.any():
        return draws, ours, wide
    return ([x.masked_fill(beyond, 0) for x in draws if x.shape == wide.shape],
            ours.masked_fill(beyond, 0), wide.masked_fill(beyond, 0))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.operators", description=__doc__.partition("\n")[0],
        epilog="Example: python -m tests.operators scatter index_add --count 100")
    parser.add_argument("names", nargs="*", metavar="NAME",
                        help="parts of names of operators (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of numbers and choices (default: 0)")
    parser.add_argument("--dtype", choices=[*DTYPES], default="float32",
                        help="of the floating-point numbers (default: float32)")
    parser.add_argument("--results", metavar="FILE", help="to which results are appended")
    parser.add_argument("--count", type=int, default=10,
                        help="calls of each operator at most (default: 10)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

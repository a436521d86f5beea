"""The setting ``pipeline_cfg`` of ``poptorch convert``, and files of its solutions.

All ends as a manual configuration: the layers of each stage, and its IPU.
"""

import json
import re
from pathlib import Path

import torch

from poptorch._device.device import MOST_IPUS
from poptorch._estimate import cuts
from poptorch._estimate.estimate import estimate
from poptorch.errors import Error
from poptorch.options import Options
from poptorch.strategies import PipelinedExecution

EXPECTED = (
    '{"converter": "manual", "manual_pipeline_config": [a list of regular expressions for each '
    'stage], "device_info": [the IPU of each stage]}, {"converter": "auto", "min_ipu_quantity": 2, '
    f'"max_ipu_quantity": {MOST_IPUS}, "solution_dir": a folder}} or {{"converter": "load", '
    '"solution_path": a file}')
SOLUTION = "greedy_search.pipeconfig"
_FEWEST = 2


def _is_ipu(value) -> bool:
    return type(value) is int and value >= 0


def _are_ipus(value) -> bool:
    return isinstance(value, list) and all(map(_is_ipu, value))


def _is_count(value) -> bool:
    return type(value) is int and 1 <= value <= MOST_IPUS


def are_patterns(value) -> bool:
    """Whether a value of a JSON file is a list of texts."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def are_lists(value) -> bool:
    """Whether a value of a JSON file is a list of lists of texts."""
    return isinstance(value, list) and bool(value) and all(map(are_patterns, value))


_TEXT = (lambda value: isinstance(value, str))
_FORMS = {"manual": {"manual_pipeline_config": are_lists, "device_info": _are_ipus},
          "auto": {"min_ipu_quantity": _is_count, "max_ipu_quantity": _is_count,
                   "solution_dir": _TEXT},
          "load": {"solution_path": _TEXT}}
_NEEDED = {"manual": "manual_pipeline_config", "load": "solution_path"}


def is_config(value) -> bool:
    """Whether a value of a JSON file has one of the forms of :data:`EXPECTED`."""
    form = _FORMS.get(value.get("converter")) if isinstance(value, dict) else None
    return form is not None and all(
        key == "converter" or key in form and form[key](part) for key, part in value.items()) \
        and _NEEDED.get(value["converter"], "converter") in value


def manual(stages: list[list[str]], ipus: list[int]) -> dict:
    """A configuration with the paths of the layers of each stage."""
    return {"converter": "manual", "device_info": ipus, "manual_pipeline_config": [
        [f"^{re.escape(path)}$" for path in paths] for paths in stages]}


def loaded(path: str) -> dict:
    """The configuration of a solution file."""
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
        ipus, mapping = values["device_mapping"], values["pipeline_mapping"]
        is_solution = _are_ipus(ipus) and all(
            type(stage) is int and 0 <= stage < len(ipus) for stage in mapping.values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Error(f"[convert] cannot read the solution {path}: {type(error).__name__}: {error}. "
                    f"Give a file that the converter \"auto\" wrote.") from None
    if not is_solution:
        numbers = sorted(set(mapping.values()), key=str)
        raise Error(f"[convert] {path} maps layers to the stages {numbers!s:.80} and stages to the "
                    f"IPUs {ipus!s:.80}. Give the IPU of each stage.")
    return manual([[layer for layer, own in mapping.items() if own == stage]
                   for stage in range(len(ipus))], ipus)


def found(config: dict, model: torch.nn.Module, options: Options, args: tuple,
          kwargs: dict) -> dict:
    """The configuration with as many IPUs as a model needs by its estimate: twice as many until it
    fits.

    It is also written to ``solution_dir``, if the settings have one.
    """
    fewest = config.get("min_ipu_quantity", _FEWEST)
    most = config.get("max_ipu_quantity", MOST_IPUS)
    if fewest > most:
        raise Error(f"[convert] min_ipu_quantity is {fewest} and max_ipu_quantity {most}. Change "
                    f"one of them.")
    options = options.clone()
    options.setExecutionStrategy(PipelinedExecution())
    whole = estimate(model, options, *args, **kwargs)
    count = fewest
    while count <= most:
        blocks = cuts.stages(model, whole, count)
        if blocks is None or len(blocks) < count:
            raise Error(f"[convert] the layers of the model cannot be cut into {count} stages. "
                        f"Set max_ipu_quantity to less than {count}, or make the model fit fewer "
                        f"IPUs: poptorch estimate shows what it needs.")
        with cuts.begun(model, blocks):
            report = estimate(model, options, *args, **kwargs)
        if report.fits:
            _write(config, blocks)
            return manual([[path] for path in blocks], list(blocks.values()))
        count *= 2
    memory = report.tile_memory
    raise Error(f"[convert] the model does not fit {count // 2} IPUs: the fullest tile needs "
                f"{memory.peak:,} bytes and has {memory.limit:,}. Increase max_ipu_quantity or "
                f"make the micro-batch smaller.")


def _write(config: dict, blocks: dict[str, int]) -> None:
    if "solution_dir" in config:
        folder = Path(config["solution_dir"])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SOLUTION).write_text(json.dumps(
            {"device_mapping": list(blocks.values()), "pipeline_mapping": blocks}, indent=1))

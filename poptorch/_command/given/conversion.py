"""The settings of ``poptorch convert``: from the command line and from a JSON file."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from poptorch._annotations.stages import Stage
from poptorch._base.checks import near_names
from poptorch._base.pytree import structure as pytree
from poptorch._command.given import pipeline
from poptorch._weights.precision import convert_precision
from poptorch.blocks import BeginBlock, removeBlocks
from poptorch.errors import Error
from poptorch.options import Options
from poptorch.strategies import PipelinedExecution, ShardedExecution

_PRECISIONS = {"FP32": torch.float32, "FP16": torch.float16, "BF16": torch.bfloat16}
_PARTIALS = {"float": torch.float32, "half": torch.float16}


def _setting(check: Callable[[Any], bool], expected: str, default=None):
    return field(default=default, metadata={"check": check, "expected": expected})


def _is_count(value) -> bool:
    return type(value) is int and value >= 1


def _is_proportion(value) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1


_PROPORTION = (_is_proportion, "a number from 0 to 1")
_PARTIALS_TYPE = (lambda value: value in ("float", "half"), '"float" or "half"')


@dataclass
class Conversion:
    """What to change of a model; None: as it is. The names are the keys of the JSON file."""

    num_ipus: int | None = _setting(_is_count, "a whole number of at least 1")
    matmul_amp: float | None = _setting(*_PROPORTION)
    conv_amp: float | None = _setting(*_PROPORTION)
    matmul_partial_type: str | None = _setting(*_PARTIALS_TYPE)
    conv_partial_type: str | None = _setting(*_PARTIALS_TYPE)
    batch_size: int | None = _setting(_is_count, "a whole number of at least 1")
    batch_per_step: int | None = _setting(lambda value: type(value) is int and value >= 0,
                                          "a whole number; 0 is the same as 1")
    precision_mode: str | None = _setting(lambda value: value in ("FP32", "FP16", "BF16"),
                                          '"FP32", "FP16" or "BF16"')
    precision_conversion_excluded_nodes: list[str] | None = _setting(
        pipeline.are_patterns, "a list of regular expressions")
    manual_sharding: list[list[str]] | None = _setting(
        pipeline.are_lists, "a list of regular expressions for each IPU")
    pipeline_cfg: dict | None = _setting(
        pipeline.is_config, pipeline.EXPECTED)

    @classmethod
    def of(cls, path: str | None, words: dict[str, Any]) -> "Conversion":
        """The settings of a JSON file, changed by those of the command line that are not None."""
        known = {row.name: row for row in fields(cls)}
        values = {} if path is None else _of_file(path)
        for name in values.keys() - known.keys():
            raise Error(f"[convert] {path} has an unknown key {name!r}.{near_names(name, known)} "
                        f"The keys are {', '.join(known)}.")
        values |= {name: value for name, value in words.items() if value is not None}
        for name, value in values.items():
            if not known[name].metadata["check"](value):
                raise Error(f"[convert] {name} must be {known[name].metadata['expected']}, got "
                            f"{value!r:.80}. Change it.")
        found = cls(**values)
        if found.pipeline_cfg is not None and found.pipeline_cfg["converter"] == "load":
            found.pipeline_cfg = pipeline.loaded(found.pipeline_cfg["solution_path"])
        found._check()
        return found

    def _check(self) -> None:
        for one, other in (("matmul_amp", "conv_amp"), ("matmul_partial_type",
                                                        "conv_partial_type")):
            a, b = getattr(self, one), getattr(self, other)
            if a is not None and b is not None and a != b:
                raise Error(f"[convert] {one} is {a} and {other} is {b}. poptorch has one value "
                            f"for matrix products and convolutions: give both the same.")
        if self.precision_conversion_excluded_nodes and self.precision_mode is None:
            raise Error("[convert] precision_conversion_excluded_nodes is set and precision_mode "
                        "is not. Set precision_mode to FP16 or BF16.")
        if self.manual_sharding is not None and self.pipeline_cfg is not None:
            raise Error("[convert] both manual_sharding and pipeline_cfg are set. Leave one out.")
        lists = self.manual_sharding
        if lists is not None and self.num_ipus is not None and len(lists) != self.num_ipus:
            raise Error(f"[convert] manual_sharding has {len(lists)} lists and num_ipus is "
                        f"{self.num_ipus}. Give a list for each IPU.")
        if self.pipeline_cfg is not None and "device_info" in self.pipeline_cfg:
            ipus = self.pipeline_cfg["device_info"]
            stages = self.pipeline_cfg["manual_pipeline_config"]
            if len(ipus) != len(stages):
                raise Error(f"[convert] manual_pipeline_config has {len(stages)} lists and "
                            f"device_info {len(ipus)} IPUs. Give an IPU for each stage.")

    # -- what it changes -----------------------------------------------------------------------

    def convert_precision(self, model: torch.nn.Module) -> None:
        """Changes the precision of a module, in place."""
        if self.precision_mode is not None:
            convert_precision(model, _PRECISIONS[self.precision_mode],
                              self.precision_conversion_excluded_nodes or ())

    def find_pipeline(self, model: torch.nn.Module, inputs: tuple, options: Options) -> None:
        """Finds the stages, where ``pipeline_cfg`` asks for it."""
        if self.pipeline_cfg is None or self.pipeline_cfg["converter"] != "auto":
            return
        config, self.pipeline_cfg = self.pipeline_cfg, None
        after = self.convert_options(options)
        args, kwargs = self.convert_inputs(inputs, options, after)
        self.pipeline_cfg = pipeline.found(config, model, after, args, kwargs)

    def begin_blocks(self, model: torch.nn.Module) -> None:
        """Replaces the blocks of a module."""
        if self.manual_sharding is not None:
            _begin_blocks(model, self.manual_sharding, list(range(len(self.manual_sharding))))
        if self.pipeline_cfg is not None:
            _begin_blocks(model, self.pipeline_cfg["manual_pipeline_config"], self._stage_ipus())

    def convert_options(self, options: Options) -> Options:
        """A copy of options with what is set here."""
        options = options.clone()
        proportion = self.conv_amp if self.matmul_amp is None else self.matmul_amp
        partials = self.conv_partial_type if self.matmul_partial_type is None \
            else self.matmul_partial_type
        if self.batch_per_step is not None:
            options.deviceIterations(max(self.batch_per_step, 1))
        if partials is not None:
            options.Precision.setPartialsType(_PARTIALS[partials])
        if self.manual_sharding is not None:
            options.setExecutionStrategy(ShardedExecution())
        if self.pipeline_cfg is not None:
            options.setExecutionStrategy(PipelinedExecution(*(
                Stage(_name(number)).ipu(ipu)
                for number, ipu in enumerate(self._stage_ipus()))))
        if proportion is not None:
            options.setAvailableMemoryProportion(
                {f"IPU{ipu}": proportion for ipu in range(self._ipus())})
        return options

    def convert_inputs(self, inputs: tuple, before: Options, after: Options) -> tuple:
        """Arguments with the batch of a whole step. Only shapes and types matter."""
        if self.batch_size is None and self.batch_per_step is None:
            return inputs
        return pytree.map_only(torch.Tensor, lambda tensor: self._resized(tensor, before, after),
                               inputs)

    def _resized(self, tensor: torch.Tensor, before: Options, after: Options) -> torch.Tensor:
        if not tensor.dim():
            return tensor
        one = self.batch_size or tensor.shape[0] // (
            before.device_iterations * before.replication_factor)
        size = one * after.device_iterations * after.replication_factor
        return tensor.new_zeros(size, *tensor.shape[1:])

    def _stage_ipus(self) -> list[int]:
        stages = self.pipeline_cfg["manual_pipeline_config"]
        return self.pipeline_cfg.get("device_info") or list(range(len(stages)))

    def _ipus(self) -> int:
        ipus = len(self.manual_sharding or ())
        if self.pipeline_cfg is not None:
            ipus = max(self._stage_ipus()) + 1
        return max(ipus, self.num_ipus or 1)


def _name(stage: int) -> str:
    return f"stage{stage}"


def _begin_blocks(model: torch.nn.Module, stages: list[list[str]], ipus: list[int]) -> None:
    """Begins a block at each outermost layer whose path matches a regular expression."""
    removeBlocks(model)
    patterns = [[_compiled(text) for text in texts] for texts in stages]
    begun: dict[str, int] = {}
    for path, layer in model.named_modules():
        number = next((number for number, some in enumerate(patterns)
                       if any(pattern.search(path) for pattern in some)), None)
        parents = [path[:at] for at, letter in enumerate(path) if letter == "."]
        if not path or number is None or any(parent in begun for parent in parents):
            continue
        begun[path] = number
        BeginBlock(layer, _name(number), ipu_id=ipus[number])
    for number, texts in enumerate(stages):
        if number not in begun.values():
            raise Error(f"[convert] no layer matches {texts}, the list number {number}. The layers "
                        f"are {', '.join(path for path, _ in model.named_modules() if path):.400}.")


def _compiled(text: str) -> re.Pattern:
    try:
        return re.compile(text)
    except re.error as error:
        raise Error(f"[convert] {text!r} is not a regular expression: {error}. Correct it.") \
            from None


def _of_file(path: str) -> dict:
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise Error(f"[convert] {path} is not JSON: {error}. Correct the file.") from None
    if not isinstance(values, dict):
        raise Error(f"[convert] {path} has a {type(values).__name__}, expected an object such as "
                    f'{{"precision_mode": "FP16"}}. Change the file.')
    return values

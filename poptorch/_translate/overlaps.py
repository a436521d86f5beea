"""Copies that may overlap with computation: what they need, and their attribute in the IR."""

from poptorch.enums import OverlapMode

LEAST_IO_TILES = 32
_BUFFERS = 2  # one is filled or emptied while the device computes with the other
_WORDS = {OverlapMode.OverlapAccumulationLoop: "accumulation_loop",
          OverlapMode.OverlapDeviceIterationLoop: "device_iteration_loop"}


def overlap_attrs(captured, is_input: bool, name: str) -> dict:
    """The attributes of the stream of an input or result."""
    for said in captured.overlaps:
        if said.is_input is is_input and said.name == name and said.mode in _WORDS:
            return {"overlap": _WORDS[said.mode], "buffers": _BUFFERS}
    return {}


def check_overlaps(captured, spec, partition) -> None:
    """Checks that copies may overlap: there are IO tiles, and it is not a pipeline.
    """
    for said in captured.overlaps:
        if said.mode not in _WORDS:
            continue
        if spec.io_tiles < LEAST_IO_TILES:
            raise said.error(f"{said.mode} needs IO tiles: there are {spec.io_tiles}, and at least "
                             f"{LEAST_IO_TILES} are needed. Call options.TensorLocations."
                             f"numIOTiles({LEAST_IO_TILES}), or choose OverlapMode.NoOverlap.")
        if partition is not None and partition.kind == "pipelined" and partition.stages > 1:
            raise said.error(f"{said.mode} is not possible in pipelined execution, and the model "
                             f"is a pipeline of {partition.stages} stages. Choose poptorch."
                             f"ShardedExecution, or OverlapMode.NoOverlap.")

"""Names of the public API that are not implemented: calling one raises an Error."""

from poptorch.errors import Error

# What is not implemented, by the word that rows use for it.
LATER = {
    "schedules": "pipelined, phased and overlapped schedules",
    "devices": "attaching to devices",
    "cache": "executable caching",
    "cycles": "cycle counts",
    "estimates": "cycle and tile-memory estimates",
    "rounding": "stochastic rounding",
    "partials": "half partials",
    "loss scaling": "loss scaling",
    "exceptions": "floating-point exceptions",
    "sharding": "sharding of weights and optimizer state over replicas",
}


def _later(name: str, what: str):
    def called(*args, **kwargs):
        raise Error(f"[{name}] is not implemented: it belongs to {what}, which this version of "
                    f"poptorch does not have. Leave the call out.")

    called.__name__ = called.__qualname__ = name
    called.__doc__ = f"""{what[0].upper()}{what[1:]}. Not implemented.

    Raises:
        poptorch.Error: Always.
    """
    return called


CPU = _later("CPU", "running a layer on the host in the midst of a model")
MultiConv = _later("MultiConv", "combining convolutions into one")
cond = _later("cond", "branches that are chosen at run time")
ctc_beam_search_decoder = _later("ctc_beam_search_decoder", "decoding by beam search")
dynamic_slice = _later("dynamic_slice", "slices whose start is known at run time")
dynamic_update = _later("dynamic_update", "updates of slices whose start is known at run time")
for_loop = _later("for_loop", "loops on the device")
fps = _later("fps", "sampling of farthest points")
ipu_print_tensor = _later("ipu_print_tensor", "printing tensors from the device")
nearest = _later("nearest", "search of nearest points")
nop = _later("nop", "operations that do nothing but stay in the program")
recomputationCheckpoint = _later("recomputationCheckpoint", "choosing what is kept for the "
                                                            "backward pass")
serializedMatMul = _later("serializedMatMul", "matrix products in several parts")
set_available_memory = _later("set_available_memory", "limits of temporary memory by operation")
set_overlap_for_input = _later("set_overlap_for_input", "overlap of computation with inputs")
set_overlap_for_output = _later("set_overlap_for_output", "overlap of computation with outputs")
LAMB = _later("optim.LAMB", "the LAMB optimizer")
RMSprop = _later("optim.RMSprop", "the RMSprop optimizer")
VariableAttributes = _later("optim.VariableAttributes", "constant and variable hyper-parameters")

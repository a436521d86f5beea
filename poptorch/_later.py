"""Names of the public API that are not implemented: calling one raises an Error."""

from poptorch.errors import Error

# What is not implemented, by the word that rows use for it.
LATER = {
    "schedules": "pipelined, phased and overlapped schedules",
    "devices": "devices of other hosts",
    "cache": "executable caching",
    "cycles": "cycle counts",
    "estimates": "cycle and tile-memory estimates",
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


LAMB = _later("optim.LAMB", "the LAMB optimizer")
RMSprop = _later("optim.RMSprop", "the RMSprop optimizer")
VariableAttributes = _later("optim.VariableAttributes", "constant and variable hyper-parameters")

"""What is not implemented, in words."""

# By the word that rows of options use for it.
LATER = {
    "devices": "devices of other hosts",
    "cache": "executable caching",
    "estimates": "cycle and tile-memory estimates",
}

# What is no option, is kept without a warning, and has no effect either.
LATER_IN_SILENCE = {
    "poptorch.set_available_memory": "estimates",
    "poptorch.MultiConv.availableMemoryProportions": "estimates",
    "poptorch.MultiConv.cycleBackOff": "estimates",
    "poptorch.MultiConv.enableConvDithering": "estimates",
    "poptorch.MultiConv.perConvReservedTiles": "estimates",
    "poptorch.MultiConv.planType": "estimates",
    "ipu_version of Options.useOfflineIpuTarget: the tiles and their memory": "estimates",
    "POPTORCH_SMALL_IPU_MODEL (environment): the size of the model": "estimates",
}

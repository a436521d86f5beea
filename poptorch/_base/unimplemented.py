"""What is not implemented, in words."""

# By the word that rows of options use for it.
LATER = {
    "schedules": "times of host and streaming transfers",
    "devices": "devices of other hosts",
    "cache": "executable caching",
    "cycles": "cycle counts",
}

# What is no option, is kept without a warning, and has no effect either.
LATER_IN_SILENCE = {
    "poptorch.set_overlap_for_input": "schedules",
    "poptorch.set_overlap_for_output": "schedules",
}

"""What is not implemented, in words."""

# By the word that rows of options use for it.
LATER = {
    "schedules": "pipelined, phased and overlapped schedules",
    "devices": "devices of other hosts",
    "cache": "executable caching",
    "cycles": "cycle counts",
    "estimates": "cycle and tile-memory estimates",
    "sharding": "sharding of weights and optimizer state over replicas",
}

"""What is not implemented, in words."""

# By the word that rows of options use for it.
LATER = {
    "devices": "devices of other hosts",
}

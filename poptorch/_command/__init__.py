"""The commands of ``poptorch`` and ``python -m poptorch``: a module for each command.

A module has ``SUMMARY``, ``EXAMPLES`` (command lines that tests run), ``add_arguments``, and
``run``, which returns the exit status or None. ``parser`` makes one command line of them.
"""

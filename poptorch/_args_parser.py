"""Alias: who says which parameters a model takes."""

from poptorch._executor.arguments import ArgsParser as ArgsParser

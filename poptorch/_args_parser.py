"""Alias: who says which parameters a model takes."""

from poptorch._runtime.arguments import ArgsParser as ArgsParser

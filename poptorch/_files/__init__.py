"""Compiled models in files; docs/internals/file_format.md describes the form."""

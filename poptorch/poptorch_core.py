"""Alias: the exceptions of the back end, and a way to raise each."""

from poptorch.errors import Error as Error
from poptorch.errors import TestErrorType as TestErrorType
from poptorch.errors import throw_test_error as _throwTestError  # noqa: F401

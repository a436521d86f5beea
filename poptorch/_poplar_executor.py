"""Alias: the executor under the name by which programs import it."""

from poptorch._capture import context_managers as _substitutions
from poptorch.executor import PoplarExecutor as PoplarExecutor


class _OverwriteContextManager:
    registerSubsitutionManager = staticmethod(_substitutions.register)

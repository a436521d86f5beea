"""Compiled parts of eager programs: ``torch.compile(backend="poptorch")``, ``poptorch.compile``."""

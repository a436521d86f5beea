"""The parts of an executor, one a file. :class:`poptorch.PoplarExecutor` forwards to them."""

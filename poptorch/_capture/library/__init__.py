"""The operators of namespace ``poptorch`` that captured graphs contain."""

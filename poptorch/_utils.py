"""Alias: joining of micro-batches."""

from poptorch.data._joining import combine_batch_tensors_gen as combine_batch_tensors_gen

"""The operation of namespace ``poptorch`` that counts numbers."""

from poptorch._capture.library.layers import define


def _counts(self, weights, minlength):
    like = self if weights is None else weights
    return like.new_empty(minlength)


define("bincount(Tensor self, Tensor? weights, int minlength) -> Tensor", _counts)

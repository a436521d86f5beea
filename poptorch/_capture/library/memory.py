"""The operations that ``as_strided`` and the like become: elements of a tensor by position.

``as_strided`` names places in memory, and a graph of values has none. Capture knows how eager's
memory lies, and names the same elements by their positions in a tensor of one dimension.
"""

from poptorch._capture.library.layers import define

define("elements(Tensor x, int[] size, int[] stride, int offset) -> Tensor",
       lambda x, size, stride, offset: x.new_empty(size))
define("elements_scatter(Tensor x, Tensor src, int[] size, int[] stride, int offset) -> Tensor",
       lambda x, src, size, stride, offset: x.new_empty(x.shape))

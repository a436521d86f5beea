"""Private names of torch that are imported with the package; ``tracing`` has the costly ones."""

import torch
from torch._utils import ExceptionWrapper as ExceptionWrapper
from torch.utils import _pytree as pytree  # noqa: F401  (used by other modules)
from torch.utils._pytree import SUPPORTED_NODES as SUPPORTED_NODES
from torch.utils._pytree import is_constant_class as is_constant_class
from torch.utils._pytree import is_namedtuple_class as is_namedtuple_class

# torch's documentation of tensor subclasses names it.
plain_access = torch._C.DisableTorchFunctionSubclass
# Of the function by which Module.load_state_dict writes to the tensors of one module.
load_code = torch.nn.Module._load_from_state_dict.__code__
make_subclass = torch.Tensor._make_subclass
without_torch_function = torch._C.DisableTorchFunction

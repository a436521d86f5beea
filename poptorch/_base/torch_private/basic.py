"""Private names of torch that are imported with the package; ``tracing`` has the costly ones."""

import torch
from torch._C._dynamo import eval_frame as _frames
from torch._utils import ExceptionWrapper as ExceptionWrapper
from torch.utils import _pytree as pytree  # noqa: F401  (used by other modules)
from torch.utils._pytree import SUPPORTED_NODES as SUPPORTED_NODES
from torch.utils._pytree import is_constant_class as is_constant_class
from torch.utils._pytree import is_namedtuple_class as is_namedtuple_class

# torch's documentation of tensor subclasses names it.
plain_access = torch._C.DisableTorchFunctionSubclass
# Of the function by which Module.load_state_dict writes to the tensors of one module.
load_code = torch.nn.Module._load_from_state_dict.__code__
is_all_true = torch._is_all_true
make_subclass = torch.Tensor._make_subclass
without_torch_function = torch._C.DisableTorchFunction


def untraced(function):
    """Lets torch.compile run a function, and all that it calls, as it is: a graph ends there.

    ``torch.compiler.disable`` does so, too, but imports torch._dynamo, which takes seconds.
    """
    function._torchdynamo_disable = True
    function._torchdynamo_disable_msg = "poptorch compiles and runs a program here"
    skip = _frames._FrameAction.SKIP
    _frames.set_code_exec_strategy(function.__code__, _frames._FrameExecStrategy(skip, skip))
    return function

"""What tensors say of themselves in forward is what they say in eager."""

import contextlib

import torch
from torch import nn

import poptorch
from tests.helpers import quiet_options

TENSORS = {
    "input": lambda m, x: x,
    "weight": lambda m, x: m.w,
    "buffer": lambda m, x: m.b,
    "constant": lambda m, x: torch.ones(3, 4),
    "number": lambda m, x: torch.tensor(3),
    "product": lambda m, x: x * m.w,
    "view": lambda m, x: (x * m.w)[1:],
    "view of the input": lambda m, x: x[:, 1:],
    "view of the weight": lambda m, x: m.w[0],
    "transposed": lambda m, x: (x * m.w).t(),
    "expanded": lambda m, x: x[:1].expand(3, 4),
    "negative": lambda m, x: torch._neg_view(x),
    "complex": lambda m, x: torch.complex(x, x),
    "conjugate": lambda m, x: torch.complex(x, x).conj(),
    "imaginary": lambda m, x: torch.complex(x, x).conj().imag,
    "integers": lambda m, x: x.long(),
    "halves": lambda m, x: x.half(),
    "doubles": lambda m, x: x.double(),
    "comparison": lambda m, x: x > 0,
    "detached": lambda m, x: (x * m.w).detach(),
    "empty": lambda m, x: x[:0],
    "sum": lambda m, x: x.sum(),
    "without gradient": lambda m, x: torch.no_grad()(torch.mul)(x, m.w),
    "channels last": lambda m, x: x.view(1, 3, 4, 1).contiguous(memory_format=torch.channels_last),
    "changed": lambda m, x: (x * 1).add_(m.w),
    "parameter": lambda m, x: nn.Parameter(torch.ones(2)),
    "leaf": lambda m, x: (x * 1).detach().requires_grad_(),
}


def plain(t):
    """For what eager asks a copy of, where a bit makes it negative or conjugate."""
    return t.resolve_neg().resolve_conj() if t.is_neg() or t.is_conj() else t


QUESTIONS = {
    "is_set_to": lambda t: plain(t).is_set_to(t),
    "is_set_to, a view": lambda t: plain(t)[...].is_set_to(t),
    "is_set_to, a copy": lambda t: plain(t).is_set_to(t.clone()),
    "channels last": lambda t: t.is_contiguous(memory_format=torch.channels_last),
    "isinstance": lambda t: isinstance(t, nn.Parameter),
    "isinstance of a type": lambda t: isinstance(t, torch.FloatTensor),
    "result_type": lambda t: torch.result_type(t, 1.5),
    "bytes": lambda t: t.untyped_storage().nbytes(),
    "stride": lambda t: t.stride(-1),
    "size": lambda t: t.size(0),
    "len": len,
}
# Of the object, not of the tensor; and addresses.
LEFT_OUT = {"_use_count", "_python_dispatch", "_cdata", "const_data_ptr", "storage_type", "grad_fn"}
PLAIN = bool | int | float | str | tuple | torch.dtype | torch.device | torch.layout | None


def answers(tensor, questions):
    """What functions give of a tensor that are not refused, in eager or here, and no tensor."""
    found = {}
    for name, ask in questions.items():
        with contextlib.suppress(Exception):
            answer = ask(tensor)
            if isinstance(answer, PLAIN) and "tensor" not in repr(answer).lower():
                found[name] = repr(answer)
    return found


def asked_of(name):
    """An attribute, or what a method without arguments returns."""
    def ask(tensor):
        value = getattr(tensor, name)
        return value() if callable(value) else value

    return ask


def questions():
    """Those above, and all attributes and methods that give no tensor."""
    names = [name for name in dir(torch.Tensor) if not name.endswith("_") and name not in LEFT_OUT]
    every = {name: asked_of(name) for name in names}
    answered = {name for tensor in (torch.rand(2, 3), torch.tensor(3))
                for name in answers(tensor, every)}
    return QUESTIONS | {name: every[name] for name in names if name in answered}


def test_answers_are_those_of_eager():
    class Asked(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.rand(3, 4))
            self.register_buffer("b", torch.rand(2))

        def forward(self, x):
            asked.append({name: answers(make(self, x), every) for name, make in TENSORS.items()})
            return poptorch.identity_loss((x * self.w).sum(), "none")

    asked, every, net, x = [], questions(), Asked(), torch.rand(3, 4) - 0.5
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(x)
    with contextlib.suppress(poptorch.Error):  # of the questions that need values
        poptorch.trainingModel(net, quiet_options(), optimizer)(x)
    with torch.no_grad():
        net(x)
    with contextlib.suppress(poptorch.Error):
        poptorch.inferenceModel(net, quiet_options())(x)
    count = 0
    for eager, ours in (asked[:2], asked[2:]):
        for name in TENSORS:
            common = eager[name].keys() & ours[name].keys()
            count += len(common)
            assert {k: ours[name][k] for k in common} == {k: eager[name][k] for k in common}, name
    assert count > 2000

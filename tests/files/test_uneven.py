"""Files of models that the next call would compile again."""

import copy
import re

import pytest
import torch

import poptorch
from tests.helpers import quiet_options


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 3)
        self.second = torch.nn.Linear(3, 3)

    def forward(self, x):
        return poptorch.identity_loss(self.second(self.first(x)).square(), "mean")


X = torch.ones(2, 3)


def trained(groups):
    net = Net()
    optimizer = torch.optim.Adam(groups(net), lr=0.125)
    model = poptorch.trainingModel(net, quiet_options(), optimizer)
    model(X)
    return net, optimizer, model


def step_with_one_gradient(net, optimizer, model):
    net.first.weight.grad = torch.ones(3, 3)
    optimizer.step()
    optimizer.zero_grad()
    model.copyWeightsToDevice()


def add_a_group(net, optimizer, model):
    optimizer.add_param_group({"params": net.second.parameters()})


CHANGES = {
    "uneven": (lambda net: net.parameters(), step_with_one_gradient,
               "Step___first.weight is 2 and Step___first.bias is 1, but the program counts both "
               "together: steps on the CPU or a loaded state made them differ."),
    "group": (lambda net: net.first.parameters(), add_a_group,
              "parameters or groups were added to the optimizer, or removed from it, after the "
              "model was compiled."),
}


@pytest.mark.parametrize("change", CHANGES)
def test_such_a_model_is_compiled_again_first(change, tmp_path):
    groups, make, words = CHANGES[change]
    net, optimizer, model = trained(groups)
    make(net, optimizer, model)
    path = tmp_path / "net.poptorch"
    advice = " Call compileAndExport() with the arguments of a call, which compiles the model again"
    with pytest.raises(poptorch.Error, match=re.escape(f"[save] {words}{advice}")):
        model.save(path)
    again = poptorch.load(model.compileAndExport(path, X))
    eager = copy.deepcopy(net)
    ours = again._optimizer.optimizer
    reference = type(optimizer)([{"params": [eager.get_parameter(name)
                                             for name, p in net.named_parameters()
                                             if any(p is q for q in group["params"])]}
                                 for group in optimizer.param_groups], lr=0.125)
    reference.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for _ in range(2):
        expected = eager(X)
        expected.backward()
        reference.step()
        reference.zero_grad()
        torch.testing.assert_close(again(X), expected.detach())
        torch.testing.assert_close(model(X), expected.detach())
    assert ours.state_dict()["state"].keys() == reference.state_dict()["state"].keys()
    model.save(path)  # now it is what was compiled


def test_a_report_compiles_it_again():
    net, optimizer, model = trained(lambda net: net.parameters())
    step_with_one_gradient(net, optimizer, model)
    assert model.nan_report(X) is None

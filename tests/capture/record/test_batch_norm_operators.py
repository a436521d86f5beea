"""Operators of batch norm that change the running statistics, which their schemas may not say."""

import pytest
import torch

import poptorch
from tests.helpers import check_narrow, quiet_options

aten = torch.ops.aten
OPERATORS = {
    "native": lambda x, w, b, mean, var: aten.native_batch_norm(
        x, w, b, mean, var, True, 0.2, 1e-5),
    "legit": lambda x, w, b, mean, var: aten._native_batch_norm_legit(
        x, w, b, mean, var, True, 0.2, 1e-5),
    "legit in inference": lambda x, w, b, mean, var: aten._native_batch_norm_legit(
        x, w, b, mean, var, False, 0.2, 1e-5)[0],
    "with update": lambda x, w, b, mean, var: aten._batch_norm_with_update(
        x, w, b, mean, var, 0.2, 1e-5)[:3],
}


class Net(torch.nn.Module):
    def __init__(self, operator):
        super().__init__()
        self.operator = operator

    def forward(self, x, weight, bias, mean, var):
        return self.operator(x, weight, bias, mean, var)


@pytest.mark.parametrize("name", OPERATORS)
def test_results_and_running_statistics(name, seed):
    given = torch.randn(5, 3, 4), torch.rand(3), torch.rand(3), torch.rand(3), torch.rand(3)
    runs = []
    for dtype in (torch.float32, torch.float64):
        arguments = [x.to(dtype) for x in given]
        runs.append([Net(OPERATORS[name])(*arguments), arguments[3:]])
    ours = [x.clone() for x in given]
    found = poptorch.inferenceModel(Net(OPERATORS[name]), quiet_options())(*ours)
    check_narrow([found, ours[3:]], runs[:1], runs[1])

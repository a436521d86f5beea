"""ipu_print_tensor: the text on stderr, of values and gradients, compiled and in eager."""

import pytest
import torch

import poptorch
from tests.helpers import quiet_options

VALUES = torch.tensor([[1.0, 2.5], [-3.25, 400.0]])


class Printing(torch.nn.Module):
    """Prints its argument with some settings."""

    def __init__(self, **settings):
        super().__init__()
        self.settings = settings

    def forward(self, x):
        return poptorch.ipu_print_tensor(x, "t", **self.settings) * 1


def _both(capfd, net, *values):
    """What is printed, which is the same in a program and in eager."""
    texts = []
    for run in (poptorch.inferenceModel(net, quiet_options()), net):
        capfd.readouterr()
        torch.testing.assert_close(run(*values), values[0])
        texts.append(capfd.readouterr().err)
    assert texts[0] == texts[1]
    return texts[0]


@pytest.mark.parametrize(("settings", "text"), [
    ({}, "t: {\n {1.0000,2.5000},\n {-3.2500,400.00}\n}\n"),
    ({"digits": 2}, "t: {\n {1.0e+00,2.5e+00},\n {-3.2e+00,4.0e+02}\n}\n"),
    ({"digits": 3, "float_format": "fixed"}, "t: {\n {1.00,2.50},\n {-3.25,400}\n}\n"),
    ({"digits": 3, "float_format": "scientific", "max_line_width": 15},
     "t: {\n {1.00e+00,\n   2.50e+00},\n {-3.25e+00,\n   4.00e+02}\n}\n"),
    ({"separator": "; ", "open_bracket": "[", "close_bracket": "]"},
     "t: [\n [1.0000; 2.5000]; \n [-3.2500; 400.00]\n]\n"),
    ({"summarise_threshold": 3, "edge_items": 0}, "t: {\n ...\n}\n"),
])
def test_settings(settings, text, capfd):
    assert _both(capfd, Printing(**settings), VALUES) == text


def test_training_as_eager(capfd):
    """Values and gradients in the order of execution, once for each micro-batch."""
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.tensor([2.0]))

        def forward(self, x):
            y = poptorch.ipu_print_tensor(x * self.w, "y", digits=2)
            z = poptorch.ipu_print_tensor(y + 1, "z", False, digits=2)
            u = poptorch.ipu_print_tensor(z * z, digits=2)
            return poptorch.identity_loss(u.sum(), "none")

    def line(title, value):
        return f"{title}{{\n {value:.1f}\n}}\n" if value < 10 else f"{title}{{\n {value:.0f}\n}}\n"

    def text(x, w):
        y = x * w
        return "".join([line("y: ", y), line("z: ", y + 1), line("", (y + 1) ** 2),
                        line("gradient: ", 1), line("y_gradient: ", 2 * (y + 1))])

    net = Net()
    options = quiet_options(Training__gradientAccumulation=2, deviceIterations=2)
    model = poptorch.trainingModel(net, options, torch.optim.SGD(net.parameters(), lr=0.0))
    model.compile(torch.ones(4))
    assert capfd.readouterr().err == ""
    model(torch.tensor([1.0, 3.0, 1.5, 1.0]))
    assert capfd.readouterr().err == "".join(text(x, 2.0) for x in (1.0, 3.0, 1.5, 1.0))
    net(torch.tensor([1.5])).backward()
    assert capfd.readouterr().err == text(1.5, 2.0)
    assert net.w.grad.item() == 12


@pytest.mark.parametrize("value", [
    (torch.tensor(1.5), "t: 1.5000\n"),
    (torch.tensor([1, -20, 3]), "t: {\n 1,-20,3\n}\n"),
    (torch.tensor([True, False]), "t: {\n true,false\n}\n"),
    (torch.tensor([7], dtype=torch.uint8), "t: {\n 7\n}\n"),
    (torch.tensor([0.5, 1.25], dtype=torch.bfloat16), "t: {\n 0.50000,1.2500\n}\n"),
    (torch.tensor([0.5, 0.0], dtype=torch.float16), "t: {\n 0.50000,0.0000\n}\n"),
    (torch.tensor([torch.nan, torch.inf, -torch.inf]), "t: {\n nan,inf,-inf\n}\n"),
    (torch.tensor([1e5, 1.0]), "t: {\n 1.0000e+05,1.0000e+00\n}\n"),
    (torch.tensor([1e-5, 1.0]), "t: {\n 1.0000e-05,1.0000e+00\n}\n"),
    (torch.tensor([9.99999]), "t: {\n 10.000\n}\n"),
    (torch.tensor([[1.0, 2.0], [3.0, 4.0]]).t(), "t: {\n {1.0000,3.0000},\n {2.0000,4.0000}\n}\n"),
    (torch.arange(4).reshape(2, 1, 2), "t: {\n {\n  {0,1}\n },\n {\n  {2,3}\n }\n}\n"),
])
def test_values(value, capfd):
    class Same(torch.nn.Module):
        def forward(self, x):
            return poptorch.ipu_print_tensor(x, "t")

    tensor, text = value
    for run in (poptorch.inferenceModel(Same(), quiet_options()), Same()):
        capfd.readouterr()
        found = run(tensor)
        assert capfd.readouterr().err == text
        torch.testing.assert_close(found, tensor, check_dtype=False, equal_nan=True)


def test_large_tensors_are_cut(capfd):
    x = torch.arange(40 * 40).reshape(40, 40)
    poptorch.ipu_print_tensor(x, edge_items=2)
    assert capfd.readouterr().err == (
        "{\n {0,1,...,38,39},\n {40,41,...,78,79},\n ...,\n"
        " {1520,1521,...,1558,1559},\n {1560,1561,...,1598,1599}\n}\n")
    poptorch.ipu_print_tensor(x, summarise_threshold=1600)
    assert "..." not in capfd.readouterr().err


def test_equal_prints_are_two(capfd):
    """They are not merged, and those of weights and constants print in each run."""
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("b", torch.tensor(3))

        def forward(self, x):
            first = poptorch.ipu_print_tensor(self.b, "b")
            second = poptorch.ipu_print_tensor(self.b, "b")
            third = poptorch.ipu_print_tensor(torch.tensor(4), "c")
            poptorch.ipu_print_tensor(x, "not used")
            return x + first + second + third

    model = poptorch.inferenceModel(Twice(), quiet_options())
    for _ in range(2):
        capfd.readouterr()
        assert model(torch.tensor(1)) == 11
        assert capfd.readouterr().err == "b: 3\nb: 3\nc: 4\n"


def test_the_result_is_another_tensor():
    class Changes(torch.nn.Module):
        def forward(self, x):
            y = poptorch.ipu_print_tensor(x)
            y.add_(1)
            return x + 0, y

    x = torch.tensor([1.0])
    torch.testing.assert_close(poptorch.inferenceModel(Changes(), quiet_options())(x),
                               (torch.tensor([1.0]), torch.tensor([2.0])))
    torch.testing.assert_close(Changes()(x), (torch.tensor([1.0]), torch.tensor([2.0])))


@pytest.mark.parametrize(("settings", "words"), [
    ({"summarise_threshold": -1}, "summarise_threshold is -1. Use an int of at least 0"),
    ({"edge_items": 1.5}, "edge_items is 1.5"),
    ({"max_line_width": 0}, "max_line_width is 0. Use an int of at least 1"),
    ({"digits": True}, "digits is True"),
    ({"digits": 33}, "digits is 33. Use 1 to 32"),
    ({"float_format": "hex"}, "float_format is 'hex'. Use one of 'auto', 'fixed', 'scientific'"),
    ({"separator": None}, "separator is None. Use a str"),
])
def test_settings_that_are_refused(settings, words):
    with pytest.raises(poptorch.Error, match=rf"\[ipu_print_tensor\] {words}"):
        poptorch.ipu_print_tensor(VALUES, **settings)

"""What is said of wrong calls and wrong libraries; the executor can be used afterwards."""

import ctypes
import re
import sys

import numpy as np
import pytest
import torch

import poptorch
from poptorch import _C
from poptorch.errors import Error
from tests.custom_ops.conftest import EXAMPLES, build
from tests.helpers import quiet_options, run_python


class Net(torch.nn.Module):
    """Calls an op on the product of a parameter and the input."""

    def __init__(self, *given, outputs=1, **attributes):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(2))
        self.given, self.outputs, self.attributes = given, outputs, attributes

    def forward(self, x):
        name, domain, version = self.given
        y = poptorch.custom_op(self.inputs(x), name, domain, version, [x] * self.outputs,
                               self.attributes)  # the user's line
        return y[0], poptorch.identity_loss(y[0], "sum")

    def inputs(self, x):
        return [self.w * x]


class TwoInputs(Net):
    def inputs(self, x):
        return [x, x]


class MixedInputs(Net):
    def inputs(self, x):
        return [x, x.int()]


EXAMPLE = "com.example"
WRONG = {
    "name": (Net("Cub", EXAMPLE, 1), r"\[custom_op\] there is no operation com.example::Cub in "
             r"version 1. There is .*com.example::Cube version 1"),
    "domain": (Net("Cube", "com.exampel", 1), r"no operation com.exampel::Cube .* There is "
               r"com.example::Cube version 1.* Load its library first"),
    "version": (Net("Cube", EXAMPLE, 2), r"no operation com.example::Cube in version 2. There is "
                r".*com.example::Cube version 1"),
    "unknown attribute": (Net("LeakyRelu", EXAMPLE, 1, beta=1.0), r"\[com.example::LeakyRelu\] has "
                          r'no attribute "beta". Its attributes: alpha\.'),
    "kind of attribute": (Net("LeakyRelu", EXAMPLE, 1, alpha="x"),
                          r'attribute "alpha" is "x", it must be a float. Give one\.'),
    "list for a number": (Net("LeakyRelu", EXAMPLE, 1, alpha=[1.0]),
                          r'attribute "alpha" is \[1.0\], it must be a float'),
    "number for a list": (Net("Shown", "trial", 1, floats=1.0),
                          r'attribute "floats" is 1.0, it must be a list of floats'),
    "float for an int": (Net("Shown", "trial", 1, count=1.5), 'it must be an int'),
    "floats for ints": (Net("Shown", "trial", 1, ints=[1.5]), 'it must be a list of ints'),
    "int for a string": (Net("Shown", "trial", 1, text=1), 'it must be a string'),
    "ints for strings": (Net("Shown", "trial", 1, texts=[1]), 'it must be a list of strings'),
    "missing attribute": (Net("AddScalar", EXAMPLE, 1), r"\[com.example::AddScalar\] attribute "
                          r'"value" is missing. Give a float\.'),
    "value of an attribute": (Net("LeakyRelu", EXAMPLE, 1, alpha=-1.0),
                              r"\[com.example::LeakyRelu\] alpha is -1. Give a number that"),
    "half a pair": (Net("Shown", "trial", 1, text="a\udc80"), r"\[custom_op\] attribute 'text' of "
                    r".*Shown.* is 'a.udc80', which holds half a surrogate pair.*Give other text"),
    "half a pair in a list": (Net("Shown", "trial", 1, texts=["a", "\ud800"]), "half a surrogate"),
    "number of inputs": (TwoInputs("Cube", EXAMPLE, 1),
                         r"\[com.example::Cube\] takes 1 inputs, got 2. Give it that many\."),
    "types of inputs": (MixedInputs("Reduce", EXAMPLE, 1), r"input 1 is i32\[2\], input 0 is f32"),
    "number of outputs": (Net("Cube", EXAMPLE, 1, outputs=2),
                          r"\[com.example::Cube\] has 1 outputs, example_outputs has 2"),
    "no kernel": (Net("NoKernel", "trial", 1), r"\[trial::NoKernel\] its definition in .* has no "
                  r"kernel. Give it one\."),
    "no output": (Net("NoOutput", "trial", 1), "its shape function declares no output"),
    "size of an output": (Net("Huge", "trial", 1), "no tensor has a negative size or more than"),
    "mixed list": (Net("Shown", "trial", 1, ints=[1, 2.5]), r"mixes types: \[1, 2.5\]"),
    "kind of value": (Net("Shown", "trial", 1, ints={1}), r"has \{1\}, of type set"),
    "large int": (Net("Shown", "trial", 1, count=2 ** 70), r"\[custom_op\] attribute 'count' of "
                  r".*Shown.* is 11805.*, which does not fit 64 bits. Give a smaller number"),
    "large int in a list": (Net("ReduceL1", "ai.onnx", 1, axes=[0, 2 ** 63]),
                            "attribute 'axes' of ReduceL1 is 92233.* does not fit 64 bits"),
    "int of 32 bits": (Net("Counted", "trial", 1, count=2 ** 40 + 1),
                       'the attribute "count" is 1099511627777, which does not fit into an int'),
    "name of an attribute": (Net("Shown", "trial", 1), "an attribute named 3, of type int"),
    "kind of attributes": (Net("ReduceL1", "ai.onnx", 1),
                           "the attributes of ReduceL1 are 'axes', of type str. Give a dict"),
    "type of the version": (Net("Cube", EXAMPLE, "1"), "domain_version is '1', of type str"),
    "large version": (Net("Cube", EXAMPLE, 2 ** 63), r"\[custom_op\] the domain_version of Cube is "
                      r"9223372036854775808, which does not fit 64 bits. Give the version"),
    "small version": (Net("Cube", EXAMPLE, -2 ** 70), "domain_version of Cube is -11805.* 64 bits"),
}
WRONG["name of an attribute"][0].attributes = {3: 1}
WRONG["kind of attributes"][0].attributes = "axes"


@pytest.mark.parametrize("case", WRONG)
def test_wrong_calls(case):
    net, words = WRONG[case]
    model = poptorch.inferenceModel(net, quiet_options())
    with pytest.raises(Error, match=words) as caught:
        model(torch.ones(2))
    assert re.search(r"test_mistakes\.py:\d+", caught.value.location), caught.value
    model.destroy()
    with pytest.raises(Error, match=words):
        net(torch.ones(2))


def test_inputs_that_are_no_list_of_tensors():
    with pytest.raises(Error, match="inputs of Cube are Tensor. Give a list of tensors"):
        poptorch.custom_op(torch.ones(2), "Cube", EXAMPLE, 1, [torch.ones(2)])
    with pytest.raises(Error, match="inputs of Cube are a list of Tensor, float"):
        poptorch.custom_op([torch.ones(2), 1.0], "Cube", EXAMPLE, 1, [torch.ones(2)])


@pytest.mark.parametrize("name, domain", [("Cube", EXAMPLE), ("Identity", "ai.onnx")])
def test_example_outputs(name, domain):
    x = torch.ones(2)
    for examples in ([x], (x,), iter([x]), (x + 1 for _ in range(1))):
        (y,) = poptorch.custom_op([x], name, domain, 1, examples)
        assert torch.equal(y, x)
    for examples, kind in [(x, "Tensor"), (1, "int"), (None, "NoneType")]:
        with pytest.raises(Error, match=rf"\[custom_op\] the example_outputs of {name} are of type "
                                        rf"{kind}. Give a list with a tensor for each output"):
            poptorch.custom_op([x], name, domain, 1, examples)
    with pytest.raises(Error, match="has 1 outputs, example_outputs has 2"):
        poptorch.custom_op([x], name, domain, 1, iter([x, x]))


@pytest.mark.parametrize(("name", "words"), [
    ("Throwing", r"\[trial::Throwing\] the first element is negative\.\n  at .*test_mistakes\.py:"),
    ("ThrowingInParts", r"\[trial::ThrowingInParts\] element [01] is -[12]\.\n  at .*py:\d+"),
])
def test_what_a_kernel_throws(name, words):
    model = poptorch.inferenceModel(Net(name, "trial", 1), quiet_options())
    for _ in range(2):
        with pytest.raises(Error, match=words):
            model(torch.tensor([-1.0, -2.0]))
        assert model(torch.tensor([1.0, 2.0]))[0].tolist() == [1.0, 2.0]
    model.destroy()


def test_what_a_kernel_throws_in_training():
    net = Net("Throwing", "trial", 1)
    net.forward = lambda x: poptorch.identity_loss(
        poptorch.custom_op([x], "Throwing", "trial", 1, [x])[0] * net.w, "sum")
    model = poptorch.trainingModel(net, quiet_options(),
                                   torch.optim.SGD(net.parameters(), lr=0.5))
    model(torch.ones(2))
    with pytest.raises(Error, match="the first element is negative"):
        model(-torch.ones(2))
    assert net.w.tolist() == [0.5, 0.5]
    model(torch.ones(2))
    assert net.w.tolist() == [0.0, 0.0]
    model.destroy()


@pytest.mark.parametrize(("name", "words"), [
    ("ThrowingAnInt", "it threw something that is no std::exception"),
    ("ReadsWrongType", r"the kernel reads elements of another type than f32\[2\] has"),
    ("WrongCost", r"\[trial::WrongCost\] its cost is -2 operations"),
])
def test_wrong_kernels(name, words):
    model = poptorch.inferenceModel(Net(name, "trial", 1), quiet_options())
    with pytest.raises(Error, match=words):
        model(torch.ones(2))
    model.destroy()


@pytest.mark.parametrize(("name", "words"), [
    ("Throwing", r"\[trial::Throwing\] version 1 has no gradient op, and a gradient flows through"),
    ("NoSuchGradient", "names 'Absent' as its gradient op, but no library has trial::Absent"),
    ("WrongGradient", r"its gradient op Scalar gives f32\[\], but the gradients of the inputs are "
                      r"f32\[2\]"),
])
def test_wrong_gradients(name, words):
    net = Net(name, "trial", 1)
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), lr=0.1))
    with pytest.raises(Error, match=words) as caught:
        model(torch.ones(2))
    assert "test_mistakes.py" in caught.value.location
    model.destroy()


def test_no_gradient_is_asked_for_where_none_flows():
    class Detached(Net):
        def inputs(self, x):
            return [x]

    net = Detached("Throwing", "trial", 1)
    function = net.forward
    net.forward = lambda x: poptorch.identity_loss(function(x)[0] * net.w, "sum")
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), lr=0.5))
    assert model(torch.ones(2)).item() == 2.0
    model.destroy()


@pytest.mark.parametrize(("attrs", "words"), [
    ({"settings": 3}, r'\[custom\] attribute "settings" is 3, an int. Give a list'),
    ({"settings": [1]}, "`settings` has 1. Give"),
    ({"op": "Cub"}, r"\[custom_op\] no library that is loaded has the op com.example::Cub in "
                    r"version 1. Loaded libraries define com.example::AddScalar version 1"),
    ({"version": 3}, "There is com.example::Cube version 1."),
])
def test_ir_written_by_hand(attrs, words):
    attrs = {"domain": EXAMPLE, "op": "Cube", "version": 1, **attrs}
    with pytest.raises(Error, match=words):
        _C.evaluate("custom", [np.ones(2, np.float32)], attrs)


LOADED = """
import ctypes, sys
import torch
{before}
import poptorch
{after}
class Net(torch.nn.Module):
    def forward(self, x):
        return poptorch.custom_op([x], "Cube", "com.example", 1, [x])[0]
model = poptorch.inferenceModel(Net(), poptorch.Options().showCompilationProgressBar(False))
try:
    print(model(torch.tensor([2.0])).tolist())
except poptorch.Error as error:
    print(error)
"""


@pytest.mark.sampled
@pytest.mark.parametrize(("before", "after", "words"), [
    ("", "torch.ops.load_library({path!r})", "[8.0]"),
    ("ctypes.cdll.LoadLibrary({path!r})", "", "[8.0]"),
    ("", "ctypes.CDLL({path!r}, mode=ctypes.RTLD_GLOBAL)", "[8.0]"),
    ("", "", "Loaded libraries define no operation. Load its library first"),
    ("", "ctypes.CDLL({path!r}); ctypes.CDLL({other!r})", "[custom_op] both "),
])
def test_ways_to_load(library, tmp_path, before, after, words):
    other = tmp_path / "other.so"
    other.write_bytes(library.read_bytes())
    paths = {"path": str(library), "other": str(other)}
    code = LOADED.format(before=before.format(**paths), after=after.format(**paths))
    assert words in run_python(code)


def test_a_compiled_model_needs_the_library_when_it_is_loaded(library, tmp_path):
    path = tmp_path / "model.poptorch"
    model = poptorch.inferenceModel(Net("Cube", EXAMPLE, 1), quiet_options())
    model.compileAndExport(path, torch.ones(2), export_model=False)
    model.destroy()
    code = f"""
import ctypes
import torch, poptorch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(2))
        self.given, self.outputs, self.attributes = ("Cube", {EXAMPLE!r}, 1), 1, {{}}
    def forward(self, x):
        raise AssertionError("it is compiled already")
options = poptorch.Options().showCompilationProgressBar(False)
model = poptorch.inferenceModel(Net(), options)
try:
    model.loadExecutable({str(path)!r})
except poptorch.Error as error:
    print(error)
ctypes.cdll.LoadLibrary({str(library)!r})
model.loadExecutable({str(path)!r})
print(model(torch.tensor([2.0, 3.0]))[0].tolist())
"""
    out = run_python(code)
    assert "no library that is loaded has the op com.example::Cube in version 1" in out
    assert "is damaged" not in out
    assert "[8.0, 27.0]" in out


def test_an_older_and_shorter_definition(tmp_path):
    """A library whose header knew less: what it does not fill in is not there."""
    source = tmp_path / "short.cpp"
    source.write_text("""
#include <poptorch/custom_op_abi.h>
#include <stddef.h>
static int32_t shape(const PoptorchOp*, const PoptorchCall* call) {
  call->add_output(call, call->inputs[0].dtype, call->inputs[0].rank, call->inputs[0].sizes);
  return 0;
}
static int32_t kernel(const PoptorchOp*, const PoptorchCall* call) {
  static_cast<float*>(call->outputs[0].data)[0] = 5;
  return 0;
}
static PoptorchOp make() {
  PoptorchOp op{};
  op.abi = 1;
  op.size = offsetof(PoptorchOp, cost);
  op.domain = "short";
  op.name = "Five";
  op.version = 1;
  op.most_inputs = -1;
  op.shape = shape;
  op.kernel = kernel;
  op.gradient = reinterpret_cast<const char*>(1);
  op.next = reinterpret_cast<const PoptorchOp*>(1);
  return op;
}
extern "C" const PoptorchOp* poptorch_custom_ops_1() {
  static const PoptorchOp op = make();
  return &op;
}
""")
    ctypes.CDLL(str(build(tmp_path, "libshort.so", source)))
    model = poptorch.inferenceModel(Net("Five", "short", 1), quiet_options())
    assert model(torch.ones(2))[0][0].item() == 5.0
    assert _C.find_custom_op("short", "Five", 1)["gradient"] is None
    model.destroy()


@pytest.mark.sampled
def test_the_build_of_torch(tmp_path):
    code = f"""
import torch.utils.cpp_extension as cpp, poptorch, torch
cpp.load("cube", [{str(EXAMPLES[1])!r}], extra_include_paths=[poptorch.include_path()],
         build_directory={str(tmp_path)!r}, is_python_module=False, with_cuda=False)
print(poptorch.custom_op([torch.tensor([2.0])], "Cube", "com.example", 1, [torch.zeros(1)]))
"""
    assert EXAMPLES[1].name == "cube.cpp"
    assert "[tensor([8.])]" in run_python(code, PATH=f"{sys.prefix}/bin:/usr/bin:/bin")

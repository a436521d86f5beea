"""Files: names, layouts and attributes of a module come back, and a changed module is noticed."""

import enum
import re

import numpy as np
import pytest
import torch

import poptorch
from poptorch._files.encode import Encoder
from poptorch._runtime import interface
from tests.helpers import quiet_options as options


def loaded(module, x, folder):
    model = poptorch.inferenceModel(module, options())
    return model, poptorch.load(model.compileAndExport(folder / "net.poptorch", x))


class NamedTensor(torch.nn.Module):
    """A parameter whose path is that of a tensor of the document, were it named so."""

    def __init__(self):
        super().__init__()
        self.tensor = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(2))])
        self.constant = torch.full((2,), 5.0)

    def forward(self, x):
        return x * self.tensor[0] + self.constant


def test_a_module_called_tensor(tmp_path):
    x = torch.ones(2)
    model, again = loaded(NamedTensor(), x, tmp_path)
    assert again.model.tensor[0].tolist() == [1, 1] and again.model.constant.tolist() == [5, 5]
    assert model(x).tolist() == again(x).tolist() == again.model(x).tolist() == [6, 6]


class Named(torch.nn.Module):
    """A parameter and a buffer with names."""

    def __init__(self, *names):
        super().__init__()
        self.register_parameter(names[0], torch.nn.Parameter(torch.full((2,), 2.0)))
        self.register_buffer(names[1], torch.full((2,), 3.0))
        self.names = names

    def forward(self, x):
        return x * getattr(self, self.names[0]) + getattr(self, self.names[1])


@pytest.mark.parametrize("names", [("__metadata__", "=__metadata__"), ("=", "__metadata__"),
                                   ("=a", "a"), ('a b\n"c\\', "==")])
def test_names_that_a_format_has_itself(names, tmp_path):
    model, again = loaded(Named(*names), torch.ones(2), tmp_path)
    assert again(torch.ones(2)).tolist() == again.model(torch.ones(2)).tolist() == [5, 5]
    assert list(again.state_dict()) == list(model.state_dict()) == list(names)


class OwnAttribute(torch.nn.Module):
    """A parameter and a plain tensor with attributes that lead to them."""

    def __init__(self):
        super().__init__()
        self.weight, self.plain = torch.nn.Parameter(torch.ones(2)), torch.ones(2)
        self.weight.me, self.weight.others = self.weight, [self.plain]
        self.plain.weight, self.tied = self.weight, self.weight

    def forward(self, x):
        return x * self.weight


def test_attributes_of_tensors_that_lead_to_them(tmp_path):
    again = loaded(OwnAttribute(), torch.ones(2), tmp_path)[1].model
    assert again.weight.me is again.weight is again.tied is again.plain.weight
    assert again.weight.others[0] is again.plain


class Permuted(torch.nn.Module):
    """Tensors that are not row-major."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(6.0).view(2, 3).t())
        self.register_buffer("images", torch.arange(24.0).view(2, 3, 2, 2)
                             .contiguous(memory_format=torch.channels_last))
        self.turned = torch.arange(24.0).view(2, 3, 4).permute(2, 0, 1)
        self.part = torch.arange(12.0).view(3, 4)[:, ::2]

    def forward(self, x):
        return (self.weight.as_strided((6,), (1,)) + x, self.images * 1, self.turned + 0,
                self.part * 1)


def test_tensors_lie_in_memory_as_they_did(tmp_path):
    x = torch.zeros(6)
    model, again = loaded(Permuted(), x, tmp_path)
    for name in ("weight", "images", "turned"):
        ours, theirs = getattr(model.model, name), getattr(again.model, name)
        assert theirs.stride() == ours.stride() and torch.equal(theirs, ours), name
    for theirs, ours in ((again, model), (again.model, model.model)):
        for found, expected in zip(theirs(x), ours(x), strict=True):
            assert torch.equal(found, expected) and found.stride() == expected.stride()
    assert torch.equal(again(x)[0], again.model(x)[0])


class Manager:
    kept = None


class Keeping(torch.nn.Module):
    """Keeps a container of tensors in an object, which is left without data."""

    def __init__(self):
        super().__init__()
        self.manager = Manager()

    def forward(self, x):
        self.manager.kept = {"y": (x * 2, x.int())}
        return x * 2


def test_tensors_without_data_that_a_call_left(tmp_path):
    module = Keeping()
    _, again = loaded(module, torch.ones(2, 3), tmp_path)
    for kept in (module.manager.kept, again.model.manager.kept):
        floats, integers = kept["y"]
        assert floats.is_meta and floats.shape == (2, 3) and floats.dtype is torch.float32
        assert integers.is_meta and integers.shape == (2, 3) and integers.dtype is torch.int32


class Sharing(torch.nn.Module):
    """Tensors in one memory."""

    def __init__(self, share):
        super().__init__()
        self.a, self.parts = torch.nn.Parameter(torch.ones(4)), []
        self.register_buffer("b", torch.ones(4))
        share(self)

    def forward(self, x):
        return x + self.a.sum() + self.b.sum()


def share_buffer(module):
    module.b = module.a.detach()[:2]


def share_data(module):
    module.b.data = module.a.data


def share_plain(module):
    module.parts.append({"first": module.a.detach()[:2]})


def share_plain_with_plain(module):
    module.parts += [torch.ones(4)] * 2
    module.parts[1] = module.parts[0][2:]


@pytest.mark.parametrize(("share", "words"), [
    (share_buffer, "b shares memory with a"), (share_data, "b shares memory with a"),
    (share_plain, r"(\S*parts\S*first shares memory with a|a shares memory with .*parts\S*first)"),
    (share_plain_with_plain, r"\S*parts\[1\] shares memory with \S*parts\[0\]")])
def test_tensors_in_one_memory_are_not_saved(share, words, tmp_path):
    model = poptorch.inferenceModel(Sharing(share), options())
    with pytest.raises(poptorch.Error, match=(
            rf"^\[save\] {words}, and a file has a copy of each. Make them one tensor of the "
            r"module, give \S+ a clone\(\), or pass export_model=False\.$")):
        model.compileAndExport(tmp_path / "net.poptorch", torch.ones(1))
    path = model.save(tmp_path / "net.poptorch", export_model=False)
    again = poptorch.inferenceModel(Sharing(share), options())
    again.loadExecutable(path)
    assert again(torch.ones(1)).item() == model(torch.ones(1)).item()


def test_parts_of_one_memory_that_do_not_overlap(tmp_path):
    def share(module):
        module.parts += torch.ones(4).split(2)

    assert loaded(Sharing(share), torch.ones(1), tmp_path)[1].model.parts[1].tolist() == [1, 1]


class Access(enum.Flag):
    READ = 1
    WRITE = 2
    BOTH = 3
    RUN = 4


class Bits(enum.IntFlag):
    LOW = 1


class Kind(enum.Enum):
    FIRST = "first"


class Flagged(torch.nn.Module):
    def __init__(self, flag):
        super().__init__()
        self.flag = flag

    def forward(self, x):
        return x * 2


@pytest.mark.parametrize("flag", [
    Access.READ, Access.READ | Access.RUN, Access.BOTH, ~Access.READ, Access(0), Kind.FIRST])
def test_flags(flag, tmp_path):
    _, again = loaded(Flagged(flag), torch.ones(2), tmp_path)
    assert again.model.flag is flag


def test_a_flag_with_bits_that_its_class_lacks(tmp_path):
    with pytest.raises(poptorch.Error, match=r"\[save\] .*flag is .*cannot be put into a file: it "
                                             r"is no member of its class"):
        loaded(Flagged(Bits(9)), torch.ones(2), tmp_path)


def test_a_frozenset_has_one_form_in_any_order():
    one, other = frozenset([0, 8]), frozenset([8, 0])
    assert list(one) != list(other)
    assert Encoder().document(one, "x") == Encoder().document(other, "x")


class Config:
    def __init__(self, factor):
        self.factor = factor


class Scaled(torch.nn.Module):
    def __init__(self, k=2.0, factor=1, shape=(2,), dtype=torch.float32):
        super().__init__()
        self.k, self.shape, self.dtype = k, shape, dtype
        self.config, self.table = Config(factor), {"shift": 0.0}
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        return (x * self.weight * self.k * self.config.factor + self.table["shift"]).view(
            self.shape).to(self.dtype)


class Outer(torch.nn.Module):
    def __init__(self, **settings):
        super().__init__()
        self.scaled = Scaled(**settings)

    def forward(self, x):
        return self.scaled(x)


def set_k(module):
    module.scaled.k = 7.0


def set_factor(module):
    module.scaled.config.factor = 3


def set_shift(module):
    module.scaled.table["shift"] = 1.0


CHANGES = [(set_k, "self.scaled.k changed from 2.0 to 7.0"),
           (set_factor, "self.scaled.config.factor changed from 1 to 3"),
           (set_shift, "self.scaled.table['shift'] changed from 0.0 to 1.0")]


@pytest.mark.parametrize(("change", "words"), CHANGES)
def test_a_module_that_was_changed_since_it_was_compiled_is_not_saved(change, words, tmp_path):
    model = poptorch.inferenceModel(Outer(), options())
    model(torch.ones(2))
    change(model.model)
    with pytest.raises(poptorch.Error) as caught:
        model.save(tmp_path / "net.poptorch")
    assert re.fullmatch(
        rf"\[save\] {re.escape(words)}.* after the model was compiled\. Set it back; or call the "
        r"model first, which compiles it again\.", caught.value.message)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("is_saved_again", [False, True])
@pytest.mark.parametrize(("change", "words"), CHANGES)
def test_a_loaded_module_that_is_changed(change, words, is_saved_again, tmp_path):
    _, again = loaded(Outer(), torch.ones(2), tmp_path)
    if is_saved_again:
        again = poptorch.load(again.save(tmp_path / "again.poptorch"))
    assert again(torch.ones(2)).tolist() == [2, 2]
    change(again.model)
    assert torch.equal(again(torch.ones(2)), again.model(torch.ones(2)))
    assert [program.reason for program in again.programs()] == ["loaded from a file", words]


@pytest.mark.parametrize(("settings", "words"), [
    ({"k": 3.0}, "scaled.k was 2.0 when the program was compiled, it is 3.0"),
    ({"k": 2}, "scaled.k was 2.0 when the program was compiled, it is 2"),
    ({"factor": 4}, "scaled.config.factor was 1 when the program was compiled, it is 4"),
    ({"shape": (1, 2)}, r"scaled.shape was \(2,\) when the program was compiled, it is \(1, 2\)"),
    ({"dtype": torch.float16}, "scaled.dtype was torch.float32 when .*, it is torch.float16")])
def test_load_executable_into_a_module_of_other_settings(settings, words, tmp_path):
    x = torch.ones(2)
    model = poptorch.inferenceModel(Outer(), options())
    path = model.compileAndExport(tmp_path / "net.poptorch", x, export_model=False)
    other = poptorch.inferenceModel(Outer(**settings), options())
    with pytest.raises(poptorch.Error, match=rf"^\[loadExecutable\] .*net.poptorch: {words}\. Wrap "
                                             r"a module of the same class and settings\.$"):
        other.loadExecutable(path)
    again = poptorch.inferenceModel(Outer(), options())
    again.loadExecutable(path)
    assert torch.equal(again(x), model(x))


class WithPlain(torch.nn.Module):
    """Plain tensors in attributes, containers and objects; an attribute of the class."""

    scale = 2.0

    def __init__(self, value=1.0):
        super().__init__()
        self.shift, self.table = torch.full((2,), 1.0), {"a": [torch.full((2,), 1.0)]}
        self.config = Config(torch.full((2,), value))

    def forward(self, x):
        return (x + self.shift + self.table["a"][0] + self.config.factor) * self.scale


def set_plain(module):
    module.shift = torch.full((2,), 3.0)


def fill_plain(module):
    module.table["a"][0].fill_(3.0)


def set_dtype(module):
    module.shift = module.shift.double()


def set_scale(module):
    module.scale = 3.0


PLAIN = [(set_plain, "shift is not the tensor that it was"), (set_dtype, "shift is not the"),
         (fill_plain, r"table\['a'\]\[0\] is not the tensor that it was when the program was "
                      "compiled, and its values are compiled in as constants"),
         (lambda module: module.config.factor.zero_(), "config.factor is not the tensor"),
         (lambda module: module.table.clear(), r"table\['a'\]\[0\] is not the tensor"),
         (set_scale, "scale was 2.0 when the program was compiled, it is 3.0"),
         (lambda module: module.__dict__.pop("config"), "config was an object when .*, it is not")]


@pytest.mark.parametrize(("change", "words"), PLAIN)
def test_load_executable_into_a_module_with_another_plain_tensor(change, words, tmp_path):
    model = poptorch.inferenceModel(WithPlain(), options())
    path = model.compileAndExport(tmp_path / "net.poptorch", torch.ones(2), export_model=False)
    other = WithPlain()
    change(other)
    with pytest.raises(poptorch.Error, match=rf"^\[loadExecutable\] .*net.poptorch: {words}.*\. "
                                             "Wrap a module of the same class and settings"):
        poptorch.inferenceModel(other, options()).loadExecutable(path)
    again = poptorch.inferenceModel(WithPlain(), options())
    again.loadExecutable(path)
    assert again(torch.ones(2)).tolist() == model(torch.ones(2)).tolist() == [8, 8]


def test_an_attribute_that_the_files_module_had_not(tmp_path):
    class Asking(torch.nn.Module):
        def forward(self, x):
            return x * getattr(self, "late", 2.0)

    path = poptorch.inferenceModel(Asking(), options()).compileAndExport(
        tmp_path / "net.poptorch", torch.ones(2), export_model=False)
    other = Asking()
    other.late = 3.0
    with pytest.raises(poptorch.Error, match="late was not there when the program was compiled, it "
                                             "is 3.0. Wrap"):
        poptorch.inferenceModel(other, options()).loadExecutable(path)


@pytest.mark.parametrize("is_saved_again", [False, True])
def test_a_plain_tensor_of_a_loaded_module_that_is_changed(is_saved_again, tmp_path):
    _, again = loaded(WithPlain(), torch.ones(2), tmp_path)
    if is_saved_again:
        again = poptorch.load(again.save(tmp_path / "again.poptorch"))
    assert again(torch.ones(2)).tolist() == [8, 8]
    again.model.shift.fill_(5.0)
    with pytest.raises(poptorch.Error, match=r"^\[save\] the values of self.shift changed, which"):
        again.save(tmp_path / "third.poptorch")
    assert torch.equal(again(torch.ones(2)), again.model(torch.ones(2)))
    again.model.shift.fill_(1.0)
    assert again(torch.ones(2)).tolist() == [8, 8]


def test_what_a_file_says_of_an_attribute_is_plain(monkeypatch, tmp_path):
    model = poptorch.inferenceModel(Outer(), options())
    monkeypatch.setattr(interface, "_plain_value", lambda holder, name: (torch.ones(1),))
    path = model.compileAndExport(tmp_path / "net.poptorch", torch.ones(2))
    with pytest.raises(poptorch.Error, match=r"net.poptorch .*interface.json is not .*attribute "
                                             r"scaled\.\w+ has a value that is not plain"):
        poptorch.load(path)


class WithArrays(torch.nn.Module):
    """Arrays and numbers of NumPy in attributes, one array in two of them."""

    def __init__(self):
        super().__init__()
        self.mean = np.linspace(0.1, 0.3, 3)
        self.same = [self.mean, np.arange(6).reshape(2, 3)[:, ::-1], np.array(True)]
        self.scale, self.count = np.float64(1.5), np.int32(2)
        self.fixed = np.ones((2, 3), np.float32)
        self.fixed.flags.writeable = False

    def forward(self, x):
        mean = torch.as_tensor(self.mean, dtype=x.dtype)
        grid = torch.from_numpy(np.ascontiguousarray(self.same[1]))
        return (x - mean) * float(self.scale) * self.count + grid


def test_arrays_of_numpy(tmp_path):
    x = torch.rand(2, 3)
    model, again = loaded(WithArrays(), x, tmp_path)
    assert torch.equal(again(x), model(x)) and torch.equal(again.model(x), model.model(x))
    ours, theirs = vars(model.model), vars(again.model)
    assert theirs["same"][0] is theirs["mean"]
    for name in ("mean", "scale", "count", "fixed"):
        assert type(theirs[name]) is type(ours[name]) and theirs[name].dtype == ours[name].dtype
        np.testing.assert_array_equal(theirs[name], ours[name])
    for mine, other in zip(ours["same"], theirs["same"], strict=True):
        np.testing.assert_array_equal(mine, other)
    again.model.mean[0] = 7  # which the program has compiled in
    assert torch.equal(again(x), again.model(x))


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([1j]), np.array([None]), np.str_("a")])
def test_arrays_of_no_numbers(array, tmp_path):
    net = torch.nn.Identity()
    net.names = array
    with pytest.raises(poptorch.Error, match=r"\[save\] model.model.names is .*its dtype is"):
        loaded(net, torch.ones(2), tmp_path)

"""registerCustomArgParser and ICustomArgParser."""

import pytest
import torch

import poptorch
from poptorch.custom_args import parser_for


class Boxes:
    """A class of the user's that holds a tensor."""

    def __init__(self, corners):
        self.corners = corners


class BoxesParser(poptorch.ICustomArgParser):
    """Its parser."""

    def yieldTensors(self, struct):
        yield struct.corners

    def reconstruct(self, original_structure, tensor_iterator):
        return Boxes(next(tensor_iterator))


def test_register():
    assert parser_for(Boxes) is None
    first, second = BoxesParser(), BoxesParser()
    poptorch.registerCustomArgParser(Boxes, first)
    assert parser_for(Boxes) is first and parser_for(torch.Tensor) is None
    poptorch.registerCustomArgParser(Boxes, second)
    assert parser_for(Boxes) is second


def test_the_nearest_base_counts():
    class Middle(Boxes):
        pass

    class Leaf(Middle):
        pass

    base, middle = BoxesParser(), BoxesParser()
    poptorch.registerCustomArgParser(Boxes, base)
    poptorch.registerCustomArgParser(Middle, middle)
    assert parser_for(Leaf) is middle and parser_for(Boxes) is base


def test_a_parser_without_our_base_class():
    class Plain:
        yieldTensors = BoxesParser.yieldTensors
        reconstruct = BoxesParser.reconstruct

    poptorch.registerCustomArgParser(Boxes, Plain())
    assert isinstance(parser_for(Boxes), Plain)


def test_bad_arguments():
    with pytest.raises(TypeError, match="expected a class, got 'Boxes'"):
        poptorch.registerCustomArgParser("Boxes", BoxesParser())
    with pytest.raises(TypeError, match="yieldTensors and reconstruct, got 3"):
        poptorch.registerCustomArgParser(Boxes, 3)
    with pytest.raises(TypeError, match="got the class BoxesParser. Pass an instance"):
        poptorch.registerCustomArgParser(Boxes, BoxesParser)
    with pytest.raises(TypeError, match="abstract"):
        poptorch.ICustomArgParser()


@pytest.mark.parametrize("lacking", ["yieldTensors", "reconstruct"])
def test_a_parser_has_both_methods(lacking):
    methods = {"yieldTensors": lambda self, struct: [], "reconstruct": lambda self, *_: None}
    del methods[lacking]
    kind = type("Half", (poptorch.ICustomArgParser,), methods)
    with pytest.raises(TypeError, match=f"abstract.*{lacking}"):
        kind()

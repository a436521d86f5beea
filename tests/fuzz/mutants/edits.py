"""Mistakes in the Python part: each is one text that a copy of the package has instead of another.

Those of the C++ part stand where they are made; ``csrc/support/mutants.def`` lists them.
"""

from typing import NamedTuple


class Edit(NamedTuple):
    """One mistake.

    Attributes:
        name: of the mutant.
        doc: what goes wrong.
        file: path in the package.
        old: text that stands there once.
        new: what the copy has instead.
    """

    name: str
    doc: str
    file: str
    old: str
    new: str


EDITS = (
    Edit("permute_is_its_inverse", "what is changed in place through a permute comes back by the "
         "same permute", "_capture/views.py",
         "inverse[dim % rank] = position", "inverse[position] = dim % rank"),
    Edit("views_stay_old", "views of what was changed in place twice keep the first change",
         "_capture/functionalize.py",
         "self._version[node] = version = self._version.get(node, 0) + 1",
         "self._version[node] = version = 1"),
    Edit("index_put_overwrites", "what is put at one index twice is not summed",
         "_translate/rules_shape.py",
         '[x, values, *indices], {"accumulate": accumulate}',
         '[x, values, *indices], {"accumulate": False}'),
    Edit("correction_is_never_zero", "var and std with correction=0 take the default",
         "_translate/rules_reduce.py",
         "correction = 1 if correction is None else correction", "correction = correction or 1"),
    Edit("compares_in_first_dtype", "comparisons of mixed dtypes are made in that of the first "
         "operand", "_translate/rules_elementwise.py",
         "dtype = torch.result_type(*metas)",
         "dtype = getattr(metas[0], 'dtype', None) or torch.result_type(*metas)"),
    Edit("micro_batches_are_summed", "with accumulation, gradients are summed where their mean is "
         "wanted", "_translate/program.py",
         "1.0 / reduction.of(self.spec, total, spec.name).each", "1.0"),
)

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
        judge: what has to find it: ``programs``, the histories of ``weights``
            (test_weight_histories.py), ``groups`` (test_group_histories.py) or ``optimizers``
            (test_optimizer_histories.py), or a test, ``tests/FILE.py::NAME``.
    """

    name: str
    doc: str
    file: str
    old: str
    new: str
    judge: str = "programs"


_STORE = "_weights/store.py"
_OWNERSHIP = "_weights/ownership.py"
_COMPILED = "_optimizer/compiled_settings.py"
_LIVE = "_optimizer/live_states.py"
_REPLICAS = "_translate/replica_groups.py"

EDITS = (
    Edit("permute_is_its_inverse", "what is changed in place through a permute comes back by the "
         "same permute", "_capture/graph/views.py",
         "inverse[dim % rank] = position", "inverse[position] = dim % rank"),
    Edit("views_stay_old", "views of what was changed in place twice keep the first change",
         "_capture/functional/functionalize.py",
         "self._version[node] = version = self._version.get(node, 0) + 1",
         "self._version[node] = version = 1"),
    Edit("index_put_overwrites", "what is put at one index twice is not summed",
         "_translate/rules/shape.py",
         '[x, values, *indices], {"accumulate": accumulate}',
         '[x, values, *indices], {"accumulate": False}'),
    Edit("correction_is_never_zero", "var and std with correction=0 take the default",
         "_translate/rules/reduce.py",
         "correction = 1 if correction is None else correction", "correction = correction or 1"),
    Edit("compares_in_first_dtype", "comparisons of mixed dtypes are made in that of the first "
         "operand", "_translate/rules/elementwise.py",
         "dtype = torch.result_type(*metas)",
         "dtype = getattr(metas[0], 'dtype', None) or torch.result_type(*metas)"),
    Edit("micro_batches_are_summed", "with accumulation, gradients are summed where their mean is "
         "wanted", "_translate/program.py",
         "1.0 / reduction.of(self.spec, total, spec.name).each", "1.0"),
    Edit("ignores_serialization", "a serialized product is computed at once",
         "_translate/rules/poptorch_ops.py",
         "    rank, dtype = len(lhs.sizes), e.dtype_of(lhs)\n",
         "    rank, dtype, factor = len(lhs.sizes), e.dtype_of(lhs), 1\n",
         "tests/device/test_settings.py::test_a_serialized_product_takes_less_memory"),
    Edit("published_is_no_news", "what copyWeightsToDevice gave one program is not new to others",
         _OWNERSHIP, """        self.version += 1
        self.copies[program] = self.version
        self.newest = None""", """        self.copies[program] = self.version
        self.newest = None""", "weights"),
    Edit("last_one_leaves_no_heirs", "what only a destroyed program had is lost to older copies",
         _OWNERSHIP, "return [] if any(map(self.is_current, others)) else others", "return []",
         "weights"),
    Edit("copies_undo_training", "copyWeightsToHost writes what another program has trained since",
         _STORE, """                if not entry.ownership.is_current(program):
                    continue
""", "", "weights"),
    Edit("taking_changes_nothing", "a program that runs on does not see that others took its value",
         _STORE, """        ownership.mark_current(program)
        self.changes += 1
""", """        ownership.mark_current(program)
""", "weights"),
    Edit("first_destroy_ends_the_watch", "destroy() ends the watch of tensors that another module "
         "wrapped for training has", "_weights/watched.py",
         "if plain is not None and (record is None or not record.watchers):",
         "if plain is not None:", "weights"),
    Edit("pending_writes_are_seen", "an executor compiled after a write of the host takes it",
         _STORE, "if ownership.copies and not is_fetched:", "if ownership.is_pending and False:",
         "weights"),
    Edit("stale_orphans_leave", "what a forgotten executor trained is lost", _STORE,
         "if not program.is_newest()]", "]", "weights"),
    Edit("groups_are_read_by_number", "the value of group i is read from replica i",
         "_weights/values.py", "[(groups.writer(entry), value) for", "[(entry, value) for",
         "groups"),
    Edit("groups_are_dealt", "replicas get the values of groups in turn, whatever their groups are",
         _REPLICAS, "return self.of(replica) if entries == self.count else replica",
         "return replica % entries", "groups"),
    Edit("entries_of_a_group_are_one", "with a value for each replica, a group gets that of one",
         _REPLICAS, "return self.of(replica) if entries == self.count else replica",
         "return self.of(replica) if entries == self.count else self.first(self.of(replica))",
         "groups"),
    Edit("shared_value_is_kept", "after a destroy(), weights of groups are not given to others",
         _STORE, "for heir in heirs if storage is not None else ():",
         "for heir in heirs if storage is None else ():", "groups"),
    Edit("destroyed_state_is_lost", "destroy() loses the state that the program had", _LIVE,
         """        with self._lock:
            self._pull(device)
            self.running = None
""", """        with self._lock:
            self._newest = {key: d for key, d in self._newest.items() if d is not device}
            self.running = None
""", "optimizers"),
    Edit("counts_begin_anew", "a program counts its updates from 0 whatever state it is given",
         "_optimizer/device_states.py", """                if value is None:
                    self._executable""", """                if value is None or entry.key == COUNT:
                    self._executable""", "optimizers"),
    Edit("moments_are_swapped", "Adam's moments come to the host under each other's names",
         "_optimizer/device_states.py", "found.setdefault(id(entry.tensor), {})[entry.key] = value",
         """key = {"exp_avg": "exp_avg_sq", "exp_avg_sq": "exp_avg"}.get(entry.key, entry.key)
                found.setdefault(id(entry.tensor), {})[key] = value""", "optimizers"),
    Edit("items_are_stale", "state_dict() shows the state as the host had it last",
         _LIVE, '"get", "items", "keys",', '"get", "keys",', "optimizers"),
    Edit("state_writes_are_lost", "what the host writes to the state reaches no program", _LIVE,
         "            del self._newest[key]", "            pass", "optimizers"),
    Edit("added_group_is_ignored", "a group that is added after compiling is not trained",
         _COMPILED, "return len(groups) != len(self._members) or not all(",
         "return not all(", "optimizers"),
    Edit("rates_are_sent_once", "a learning rate that changes is not sent", _COMPILED,
         "if self._sent[number:number + 1] != [values]:",
         "if self._sent[number:number + 1] in ([None], []):", "optimizers"),
    Edit("another_optimizer_begins_anew", "setOptimizer() forgets the state that a program has",
         _LIVE, "                    self._newest[key] = device", "                    pass",
         "optimizers"),
    Edit("former_optimizer_follows", "an optimizer that a program no longer has shows what is "
         "trained with the next one", "_optimizer/link.py",
         "            device.previous.append(weakref.ref(old))", "            pass", "optimizers"),
    Edit("replaced_state_is_ignored", "a dictionary that takes the place of optimizer.state is "
         "thrown away", "_optimizer/link.py",
         "        if self._optimizer.state is not self.store:\n            old",
         "        self._optimizer.state = self.store\n        if False:\n            old",
         "optimizers"),
)

"""Several programs over one set of weights, in one file."""

from poptorch._files import archive, executable, problems
from poptorch._files.encode import Encoder
from poptorch._files.executable import Contents, File
from poptorch.errors import Error


def write(programs: dict[str, Contents], filename) -> str:
    """Writes programs by their names to a file, and returns its path."""
    weights: dict = {}
    owner: dict[str, str] = {}
    for name, contents in programs.items():
        for path, tensor in contents.weights().items():
            if weights.setdefault(path, tensor) is not tensor:
                raise Error(f"[save_bundle] the modules of {owner[path]} and {name} have different "
                            f"tensors with the path {path}. A bundle has one set of weights: wrap "
                            f"the same module for all programs, or save two files.")
            owner.setdefault(path, name)
    encoder = Encoder(weights)
    members = {f"{name}/{member}": data for name, contents in programs.items()
               for member, data in executable.own_members(contents, encoder).items()}
    members |= executable.shared_members(weights, encoder)
    facts = {"programs": {name: contents.facts for name, contents in programs.items()}}
    return archive.write(filename, next(iter(programs.values())).facts["model_class"], members,
                         facts, archive.BUNDLE)


def read(filename) -> dict[str, File]:
    """The programs of a file by their names; tensors that they share are the same objects."""
    manifest, members = archive.read(filename, archive.BUNDLE)
    found: dict[str, File] = {}
    names = {member.partition("/")[0] for member in members if "/" in member}
    if names != manifest["programs"].keys() or not names:
        raise problems.damaged(filename, f"its manifest names the programs "
                                         f"{sorted(manifest['programs'])}, it has {sorted(names)}")
    shared, decoder = {name: data for name, data in members.items() if "/" not in name}, None
    for name, facts in manifest["programs"].items():
        own = {member.removeprefix(f"{name}/"): data for member, data in members.items()
               if member.startswith(f"{name}/")}
        found[name] = File(f"{filename} ({name})", ({**manifest, **facts}, {**shared, **own}),
                           decoder)
        decoder = found[name]._decoder
    return found

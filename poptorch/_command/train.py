"""``poptorch train``."""

import torch
from tqdm import tqdm

from poptorch import files
from poptorch._command import printed
from poptorch._command.given import arrays, outputs, program_file, weights
from poptorch.errors import Error

SUMMARY = "train a compiled model on arrays and write its weights"
EXAMPLES = (
    "poptorch train train.poptorch --data x.npy label.npy --steps 5 \\\n"
    "      --out w.safetensors",
    "poptorch train train.poptorch --data batches.npz --steps 5 \\\n"
    "      --out w.safetensors --save later.poptorch --json")


def add_arguments(parser) -> None:
    """Adds the arguments of the command."""
    program_file.add_run(parser)
    parser.add_argument("--data", nargs="+", required=True, metavar="FILE",
                        help="files of tensors as `poptorch run` takes them. Each tensor holds "
                        "batches one after the other on dimension 0. After the last batch, "
                        "training continues with the first one")
    parser.add_argument("--steps", type=program_file.count, required=True, metavar="N",
                        help="how many batches to train on")
    parser.add_argument("--out", required=True, metavar="FILE",
                        help="a .safetensors file for the weights, by their names in state_dict()")
    parser.add_argument("--weights", metavar="FILE", help="a .safetensors file of weights to start "
                        "with; default: those of the program")
    parser.add_argument("--save", metavar="FILE", help="write the program with its weights, the "
                        "state of the optimizer and the random state, to continue later")
    printed.add_json(parser)


def run(arguments) -> None:
    """Trains; prints the loss of each step."""
    losses = []
    outputs.check(arguments.out, "train")
    outputs.check(arguments.save, "train")
    with program_file.threads(arguments.threads):
        program = program_file.read(arguments, "train")
        if not program.executor.training:
            raise Error(f"[train] {arguments.file} is a program for inference. Compile one for "
                        f"training: `poptorch compile --optimizer`.")
        if arguments.weights is not None:
            weights.load(program.executor, arguments.weights, "train")
        data = _batches(program, arguments.data)
        for step in tqdm(range(arguments.steps), desc="train", leave=False, disable=None):
            loss = program.loss_of(program.run([parts[step % len(parts)] for parts in data]))
            losses.append([] if loss is None else loss.double().flatten().tolist())
            if not arguments.json:
                tqdm.write(" ".join(map(str, losses[-1])))
        files.save_weights(program.executor, arguments.out)
        saved = arguments.save and program.save(arguments.save)
    if arguments.json:
        printed.as_json({"losses": losses, "weights": arguments.out, "program": saved})


def _batches(program: program_file.Program, paths: list[str]) -> list[tuple[torch.Tensor, ...]]:
    names = [row["name"] for row in program.inputs]
    data = []
    for number, tensor in enumerate(arrays.read(paths, names, "train")):
        row = program.inputs[number]
        size = row["shape"][0] if row["shape"] else 1
        if tensor.dim() != max(len(row["shape"]), 1) or not len(tensor) or len(tensor) % size:
            given = {"dtype": printed.dtype_name(tensor.dtype), "shape": list(tensor.shape)}
            raise Error(f"[train] the array for {names[number]} is {printed.type_text(given)}, "
                        f"expected batches of {printed.type_text(row)} one after the other. Save "
                        f"them as one array.")
        parts = tensor.split(size) if row["shape"] else tensor.unbind()
        program.check(number, parts[0], f"a batch for {names[number]}", "train")
        data.append(parts)
    counts = {name: len(parts) for name, parts in zip(names, data)}
    if len(set(counts.values())) > 1:
        raise Error(f"[train] the arrays have different numbers of batches: {counts}. Give all the "
                    f"same number.")
    return data

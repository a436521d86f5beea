"""``poptorch convert``."""

import torch

from poptorch._command import printed
from poptorch._command.compile import export
from poptorch._command.given import given_options, model_arguments, program_file, typed_inputs
from poptorch._command.given.conversion import Conversion
from poptorch.errors import Error
from poptorch.models import inferenceModel
from poptorch.options import Options

SUMMARY = "change precision, batch size and placement of a model for inference"
EXAMPLES = (
    "poptorch convert net.py:Net --precision-mode FP16 -o half.poptorch",
    "poptorch convert net.poptorch --import net.py --batch-size 4 -o small.poptorch",
    "poptorch convert net.py:Deep --pipeline-stage ^encoder \\\n"
    "      --pipeline-stage ^head --batch-per-step 2 -o deep.poptorch",
    "poptorch convert net.py:Deep --config-file config.json -o half.poptorch --json")
_PATTERNS = {"nargs": "+", "metavar": "REGEX"}


def add_arguments(parser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument("model", help="file.py:Name of a class, function or module; or a file that "
                        "`poptorch compile` wrote, with --import")
    parser.add_argument("--import", dest="imports", action="append", default=[], metavar="MODULE",
                        help="the Python file or module with the classes of a compiled model")
    model_arguments.add_inputs(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the file to write")
    parser.add_argument("--config-file", metavar="FILE", help="a JSON object of settings. Its keys "
                        "are the names of the settings below with _ for -, unless their help "
                        "names another. Settings of the command line replace them")
    settings = parser.add_argument_group("settings")
    settings.add_argument("--precision-mode", metavar="MODE", help="FP32, FP16 or BF16: the type "
                          "of the weights")
    settings.add_argument("--exclude", dest="precision_conversion_excluded_nodes", **_PATTERNS,
                          help="parameters and buffers that keep their type, by their names. In "
                          "JSON: precision_conversion_excluded_nodes")
    settings.add_argument("--num-ipus", type=int, metavar="N", help="the number of IPUs that the "
                          "program must need")
    for kind in ("matmul", "conv"):
        settings.add_argument(f"--{kind}-amp", type=float, metavar="SHARE", help="the share of a "
                              "tile, 0 to 1, for temporary memory. poptorch has one value for "
                              "matrix products and convolutions")
    for kind in ("matmul", "conv"):
        settings.add_argument(f"--{kind}-partial-type", metavar="TYPE", help="float or half: the "
                              "type of partial sums, also one value for both")
    settings.add_argument("--batch-size", type=int, metavar="N", help="samples of a micro-batch: "
                          "replaces the first dimension of the inputs")
    settings.add_argument("--batch-per-step", type=int, metavar="N", help="micro-batches of a call "
                          "(deviceIterations)")
    settings.add_argument("--manual-sharding", action="append", **_PATTERNS,
                          help="layers of an IPU, by their paths: once for each IPU. Other layers "
                          "run where the layer before them ran")
    settings.add_argument("--pipeline-stage", action="append", **_PATTERNS,
                          help="layers of a pipeline stage: once for each stage. In JSON: "
                          "manual_pipeline_config of pipeline_cfg")
    settings.add_argument("--device-info", nargs="+", type=int, metavar="IPU",
                          help="the IPU of each stage; default: 0 1 2 ... In JSON: device_info of "
                          "pipeline_cfg")
    printed.add_json(parser)


def run(arguments) -> None:
    """Converts a model and writes the compiled program."""
    words = {name: getattr(arguments, name) for name in (
        "num_ipus", "matmul_amp", "conv_amp", "matmul_partial_type", "conv_partial_type",
        "batch_size", "batch_per_step", "precision_mode", "precision_conversion_excluded_nodes",
        "manual_sharding")}
    conversion = Conversion.of(arguments.config_file,
                               words | {"pipeline_cfg": _pipeline(arguments)})
    model, (args, kwargs), before = _read(arguments)
    conversion.convert_precision(model)
    conversion.find_pipeline(model.eval(), (args, kwargs), before)
    conversion.begin_blocks(model)
    options = conversion.convert_options(before)
    args, kwargs = conversion.convert_inputs((args, kwargs), before, options)
    executor = inferenceModel(model, options)
    executor.compile(*args, **kwargs)
    ipus = executor._executable.ipus
    if conversion.num_ipus not in (None, ipus):
        raise Error(f"[convert] num_ipus is {conversion.num_ipus}, and the program needs {ipus}. "
                    f"Give a list of layers for each IPU (manual_sharding or pipeline_cfg).")
    export(executor, args, kwargs, arguments)


def _pipeline(arguments) -> dict | None:
    if arguments.pipeline_stage is None:
        if arguments.device_info is not None:
            raise Error("[convert] --device-info is set without --pipeline-stage. Add the stages.")
        return None
    found = {"converter": "manual", "manual_pipeline_config": arguments.pipeline_stage}
    return found | ({} if arguments.device_info is None
                    else {"device_info": arguments.device_info})


def _read(arguments) -> tuple[torch.nn.Module, tuple[tuple, dict], Options]:
    """The module, the arguments of a call and the options."""
    if not program_file.is_program(arguments.model):
        for name in arguments.imports:
            raise Error(f"[convert] --import {name} is for a compiled model, and "
                        f"{arguments.model} is not one. Leave it out.")
        given = model_arguments.Model(arguments, "convert")
        return given.model, (given.inputs, {}), given.options
    file = program_file.opened(arguments.model, None, "convert")
    if file.manifest["training"]:
        raise Error(f"[convert] {arguments.model} is a program for training. Compile the model "
                    f"again with `poptorch compile`.")
    program = program_file.Program(file, arguments.imports, "convert", has_code=True)
    executor = program.executor
    inputs = tuple(map(typed_inputs.tensor, arguments.input, ["convert"] * len(arguments.input)))
    options = given_options.changed(executor.options, arguments.options, "convert")
    call = (inputs, {}) if inputs else program.arguments()
    model = executor.model
    executor.destroy()
    return model, call, options

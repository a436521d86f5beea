"""What ``python -m poptorch analyze`` does."""

from poptorch import models
from poptorch._command import given_options, model_file, typed_inputs
from poptorch._estimate.analyze import analyze
from poptorch.errors import Error


def analyze_file(arguments) -> int:
    """Prints the operations of a model in a file; 1 if one is refused, else 0."""
    module, model = model_file.read(arguments.model, "analyze")
    inputs = typed_inputs.inputs(arguments.input, module, "analyze")
    options = given_options.of(module, arguments.options, "analyze")
    optimizer = typed_inputs.optimizer(arguments.optimizer, model)
    try:
        executor = models.inferenceModel(model, options) if optimizer is None \
            else models.trainingModel(model, options, optimizer)
    except ValueError as error:  # of options that only training takes
        raise Error(str(error)) from None
    found = analyze(executor, *inputs)
    print(found.to_json() if arguments.json else found)
    return 1 if found.refused else 0

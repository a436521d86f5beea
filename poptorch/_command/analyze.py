"""What ``python -m poptorch analyze`` does."""

from poptorch._command import model_file, typed_inputs
from poptorch._estimate.analyze import analyze


def analyze_file(arguments) -> int:
    """Prints the operations of a model in a file; 1 if one is refused, else 0."""
    module, model = model_file.read(arguments.model, "analyze")
    found = analyze(model, *typed_inputs.inputs(arguments.input, module, "analyze"),
                    optimizer=typed_inputs.optimizer(arguments.optimizer, model))
    print(found.to_json() if arguments.json else found)
    return 1 if found.refused else 0

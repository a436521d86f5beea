"""What the options of an executor mean for the steps: the one place that reads most of them."""

import torch

from poptorch import testing
from poptorch._executor.device import MOST_IPUS
from poptorch._executor.grouping import check_divides, weight_groups
from poptorch._logging import use_log_options
from poptorch._translate import StepSpec
from poptorch.enums import CommGroupType, OutputMode, ReductionType
from poptorch.errors import Error
from poptorch.options import Options


def resolved(options: Options, training: bool) -> Options:
    """A frozen copy in which defaults that depend on the kind of model are decided.

    Args:
        options: the user's, which are frozen by this.
        training: whether the model trains.

    Raises:
        poptorch.Error: The options contradict one another.
    """
    options._freeze()
    own = options.clone()
    if own.output_mode is OutputMode.Default:
        own._set("output_mode", OutputMode.Final if training else OutputMode.All)
    if own.model_name is None:
        own._set("model_name", "training" if training else "inference")
    check_divides("inputReplicaGrouping", "groups", own.input_group_size, own.replication_factor)
    own._freeze()
    use_log_options(own.max_repeat_logs, own.log_dir)
    return own


def step_spec(executor) -> StepSpec:
    """What translate puts around the captured graph of an executor."""
    options, training = executor.options, executor.training
    reduction = options.Training.accumulation_and_replication_reduction_type
    strategy = options.Training.mean_accumulation_and_replication_reduction_strategy
    return StepSpec(training=training, device_iterations=options.device_iterations,
                    accumulation=options.Training.gradient_accumulation if training else 1,
                    replicas=options.replication_factor,
                    input_group_size=options.input_group_size,
                    weight_groups=weight_groups(executor),
                    mean=reduction is ReductionType.Mean, mean_strategy=strategy,
                    synthetic_data=options.enable_synthetic_data,
                    keep_gradients=testing.keeps_gradients(),
                    anchors=tuple((short, name) for short, (name, _, _)
                                  in options.anchored_tensors.items()),
                    strategy=options._execution_strategy)


def compile_options(options: Options) -> dict:
    """The options of ``_C.compile``."""
    is_orthogonal = options.input_group_type is CommGroupType.Orthogonal
    return {"threads": torch.get_num_threads(), "replicas": options.replication_factor,
            "max_ipus": MOST_IPUS, "power_of_two_ipus": not options.auto_round_num_ipus,
            "input_group_size": options.input_group_size,
            "orthogonal_input_groups": is_orthogonal}


def check_buffers(options: Options, module: torch.nn.Module, captured) -> None:
    """Checks what the options say about buffers against a captured model.

    Args:
        options: resolved options.
        module: the user's module.
        captured: what capture recorded of it.

    Raises:
        poptorch.Error: Replicas would change a buffer that they share; or a buffer that the
            options name is not there.
    """
    names = {spec.name for spec in captured.inputs if spec.kind == "buffer"}
    changed = [spec.name for spec in captured.outputs
               if spec.kind == "buffer_update" and spec.name in names]
    if changed and options.broadcast_buffers and options.replication_factor > 1:
        raise Error(f"[broadcastBuffers] PopTorch does not support broadcasting buffers, and "
                    f"forward changes {', '.join(changed)} on {options.replication_factor} "
                    f"replicas. Call options.broadcastBuffers(False), so that each replica has "
                    f"its own.")
    known = dict(module.named_buffers())
    for name in options.updatable_named_buffers:
        if name not in known:
            raise Error(f"[updatableNamedBuffers] the module has no buffer {name!r}. Its buffers "
                        f"are: {', '.join(known) or 'none'}.")

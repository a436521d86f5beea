"""What the options of an executor mean for the steps: the one place that reads most of them."""

import torch

from poptorch._base import switches
from poptorch._base.logging import use_log_options
from poptorch._device.device import MOST_IPUS
from poptorch._translate import StepSpec
from poptorch._weights.grouping import check_divides
from poptorch.enums import CommGroupType, OutputMode, ReductionType
from poptorch.errors import Error
from poptorch.options import Options


def resolved(options: Options, training: bool) -> Options:
    """A frozen copy in which defaults that depend on the module are decided.

    An Error if options contradict one another.
    """
    own = options.clone()
    default = OutputMode.Final if training else OutputMode.All
    if own.output_mode is OutputMode.Default:
        own._set("output_mode", default)
    own._set("anchored_tensors", {
        short: (name, default if mode is OutputMode.Default else mode, period)
        for short, (name, mode, period) in own.anchored_tensors.items()})
    if own.model_name is None:
        own._set("model_name", "training" if training else "inference")
    if training and own.timeout_s is not None:
        raise Error(f"[timeout] a training call that is stopped after {own.timeout_s:g} s would "
                    f"leave weights half written. Set a timeout only in the options of an "
                    f"inferenceModel.")
    check_divides("inputReplicaGrouping", "groups", own.input_group_size, own.replication_factor)
    own._freeze()
    use_log_options(own.max_repeat_logs, own.log_dir)
    return own


def step_spec(options: Options, training: bool, weight_groups: tuple) -> StepSpec:
    """What translate puts around the captured graph. Rows name the fields that take their value.

    ``weight_groups`` has the weights with a value for each group of replicas, by path.
    """
    reduction = options.Training.accumulation_and_replication_reduction_type
    return StepSpec(training=training, weight_groups=weight_groups,
                    mean=reduction is ReductionType.Mean,
                    keep_gradients=switches.keeps_gradients()
                    or training and options.Training.optimizer_on_host,
                    anchors=tuple((short, name) for short, (name, _, _)
                                  in options.anchored_tensors.items()),
                    float16_partials=options.Precision.partials_type is torch.float16,
                    strategy=options._execution_strategy,
                    locations=options.TensorLocations._for_compiler(),
                    **options.TensorLocations._sharded(),
                    **{row.step: row.default if group is options.Training and not training
                       else group._values[row.name]
                       for group, row in options._rows() if row.step})


def compile_options(options: Options) -> dict:
    """The options of ``_C.compile``. Rows name those that take their value."""
    return {"threads": torch.get_num_threads(), "max_ipus": MOST_IPUS,
            "power_of_two_ipus": not options.auto_round_num_ipus,
            "orthogonal_input_groups": options.input_group_type is CommGroupType.Orthogonal,
            **{row.compiler: group._values[row.name]
               for group, row in options._rows() if row.compiler}}


def check_buffers(options: Options, module: torch.nn.Module, changed: list[str]) -> None:
    """Checks what the options say about buffers; ``forward`` changes the buffers ``changed``.

    An Error if replicas would change one that they share, or a named buffer is not there.
    """
    if changed and options.broadcast_buffers and options.replication_factor > 1:
        raise Error(f"[broadcastBuffers] forward changes {', '.join(changed)} on "
                    f"{options.replication_factor} replicas. PopTorch does not support "
                    f"broadcasting buffers. If your model is able to tolerate buffers becoming out "
                    f"of sync between replicas, you can disable buffer broadcasting using "
                    f"poptorch.Options.broadcastBuffers(False).")
    known = dict(module.named_buffers())
    for name in options.updatable_named_buffers:
        if name not in known:
            raise Error(f"[updatableNamedBuffers] the module has no buffer {name!r}. Its buffers "
                        f"are: {', '.join(known) or 'none'}.")

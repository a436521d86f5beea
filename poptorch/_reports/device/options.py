"""The report of a program that was compiled with some options."""

from poptorch._device.cost_settings import settings_of, target_of
from poptorch._reports.device.report import DeviceReport, device_report
from poptorch.options import Options
from poptorch.options._row import shown


def report_of(text: str, options: Options, given: Options, samples: int, title: str,
              is_training: bool) -> DeviceReport:
    """The report of a program's text after the step "place".

    Args:
        text: of the program.
        options: those that it was compiled with.
        given: those of the user.
        samples: of one call in one process.
        title: of the report.
        is_training: whether a call accumulates gradients.
    """
    processes = options.Distributed.num_distributed_processes
    accumulation = options.Training.gradient_accumulation if is_training else 1
    return device_report(
        text, target=target_of(options), settings=settings_of(options),
        options_changed=changed_options(given), replicas=options.replication_factor,
        device_iterations=options.device_iterations, accumulation=accumulation,
        samples=samples * processes, title=title)


def changed_options(options: Options) -> dict[str, str]:
    """The options that differ from the default, as they are printed."""
    return {row.name: shown(group._values[row.name]) for group, row in options._rows()
            if group._values[row.name] != row.default}

"""Which device a program is compiled for and runs on."""

from poptorch._device import environment
from poptorch._logging import logger
from poptorch.enums import ConnectionType
from poptorch.errors import Error
from poptorch.options import Options

# The most IPUs that one process may have.
MOST_IPUS = 64

_said: set[str] = set()


class Device:
    """The device of one executor. There is one kind so far, the IPU Model.

    Args:
        options: resolved options of the executor.

    Raises:
        ValueError: An environment variable about devices holds what it does not take.
        poptorch.Error: An offline target was asked for together with the IPU Model.
    """

    def __init__(self, options: Options):
        self._options = options
        self._is_held = False
        self._refusal = _refusal(options)
        environment.check()
        if options.offline_ipu_version is not None and _model_is_wanted(options):
            raise Error("[useOfflineIpuTarget] an offline target cannot be used together with the "
                        "IPU Model, which useIpuModel(True) or one of the environment variables "
                        f"{' and '.join(environment.MODELS)} asks for. Use one of both.")

    @property
    def is_held(self) -> bool:
        """Whether the executor holds its device."""
        return self._is_held

    def before_compile(self) -> None:
        """Takes the device, if options say that it is taken from the start."""
        if self._options.connection_type is ConnectionType.Always:
            self._take()

    def after_compile(self) -> None:
        """Takes the device, unless that is done or the program is not to run."""
        self._take()

    def release(self) -> None:
        """Gives the device back."""
        self._is_held = False

    @property
    def can_run(self) -> bool:
        """Whether the options let the program run here."""
        return not self._refusal

    def check_can_run(self) -> None:
        """Raises when the program is not to run.

        Raises:
            AssertionError: The model was compiled for later, or for elsewhere.
        """
        if self._refusal:
            raise AssertionError(self._refusal)

    def _take(self) -> None:
        if self._is_held or self._refusal:
            return
        self._is_held = True
        if self._options.use_ipu_model is False:
            _once(logger.warning, "useIpuModel(False) asks for an IPU system, none is present: "
                                  "running on the IPU Model.")
        elif not _model_is_wanted(self._options):
            _once(logger.info, "No IPU system is present: running on the IPU Model.")
        logger.debug("Took the IPU Model as device.")


def _refusal(options: Options) -> str:
    """Why a program may not run; empty if it may."""
    words = "Trying to run a model on an offline device: {}. Compile and save it here, and run " \
            "it under other options."
    if options.offline_ipu_version is not None:
        return words.format("options.useOfflineIpuTarget() was called")
    if options.connection_type is ConnectionType.Never:
        return words.format("options.connectionType(ConnectionType.Never) was called")
    return ""


def _model_is_wanted(options: Options) -> bool:
    """Whether options or environment ask for the IPU Model: the first one that says anything."""
    if options.use_ipu_model is not None:
        return options.use_ipu_model
    said = (environment.switch(variable) for variable in environment.MODELS)
    return next((is_on for is_on in said if is_on is not None), False)


def _once(log, message: str) -> None:
    if message not in _said:
        _said.add(message)
        log(message)

"""Which device a program is compiled for and runs on."""

import contextlib
import time
from collections.abc import Callable, Iterator

from poptorch._base.logging import logger
from poptorch._device import environment, systems
from poptorch._device.busy import Busy
from poptorch._device.model_device import ModelDevice
from poptorch._device.system_device import SystemDevice
from poptorch.enums import ConnectionType
from poptorch.errors import Error
from poptorch.options import Options

# The most IPUs that one process may have.
MOST_IPUS = 64

_POLL_S = 0.01


class Device:
    """The device of one executor: the IPU Model, or IPUs of the virtual system.

    Attributes:
        returns_zeros: whether a call compiles the program, and returns zeros instead of running it.
    """

    def __init__(self, options: Options):
        self._options = options
        self._refusal = _refusal(options)
        self.returns_zeros = options.connection_type is ConnectionType.PreCompile
        environment.check()
        if options.offline_ipu_version is not None and environment.is_model_wanted(options):
            raise Error("[useOfflineIpuTarget] an offline target cannot be used together with the "
                        "IPU Model, which useIpuModel(True) or one of the environment variables "
                        f"{' and '.join(environment.MODELS)} selects. Use only one of the two.")
        system = system_of(options)
        self._place = ModelDevice(options) if system is None else SystemDevice(options, system)

    @property
    def is_held(self) -> bool:
        """Whether the executor holds it."""
        return self._place.is_held

    def when_free(self, take: Callable):
        """What ``take`` returns, which takes the device and may raise Busy.

        If ``POPTORCH_WAIT_FOR_IPU`` says so, it is called again when no other executor holds the
        device. No lock may be held: whoever holds the device needs them to let go of it.
        """
        has_said = False
        while True:
            try:
                return take()
            except Busy as busy:
                if not environment.switch(environment.WAIT):
                    raise
                if not has_said:
                    logger.info("Waiting: %s", busy)
                    has_said = True
                is_free = busy.is_free
            while not is_free():
                time.sleep(_POLL_S)

    @contextlib.contextmanager
    def compiling(self, is_kept: bool = False) -> Iterator[None]:
        """Takes the device for a compilation, if the options say that it is taken from the start.

        A system's device whose id is not given is taken by :meth:`placed`. Releases the device when
        the compilation fails, unless ``is_kept``.
        """
        if self._options.connection_type is ConnectionType.Always:
            self.take(None)
        try:
            yield
        except BaseException:
            if not is_kept:
                self.release()
            raise

    def placed(self, ipus: int) -> None:
        """Checks how many IPUs a program needs that is being compiled.

        Takes a device with so many, if the options say that it is taken from the start.
        """
        self._place.check_ipus(ipus)
        if self._options.connection_type is ConnectionType.Always:
            self.take(ipus)

    def release(self) -> None:
        """Gives the device back."""
        self._place.release()

    @property
    def can_run(self) -> bool:
        """Whether the options let the program run here."""
        return not self._refusal

    def check_can_run(self) -> None:
        """Raises an AssertionError if the model was compiled for later, or for elsewhere."""
        if self._refusal:
            raise AssertionError(self._refusal)

    def take(self, ipus: int | None) -> None:
        """Takes a device with so many IPUs, or raises Busy.

        Does nothing if it is held, or the program is not to run.
        """
        if not self._refusal:
            self._place.take(ipus)

    def check_ipus(self, ipus: int) -> None:
        """Raises an Error if the device cannot be one with so many IPUs."""
        self._place.check_ipus(ipus)

    def check_version(self, version: int | None) -> None:
        """Raises an Error if a program for IPUs of that version cannot run; None: any version."""
        self._place.check_version(version)


def system_of(options: Options) -> systems.System | None:
    """The system that a program runs on; None: the IPU Model, or an offline target."""
    if options.offline_ipu_version is not None or environment.is_model_wanted(options):
        return None
    return systems.of_environment() if options.ipu_system is None else \
        systems.named(options.ipu_system)


def _refusal(options: Options) -> str:
    """Why a program may not run; empty if it may."""
    if options.offline_ipu_version is not None:
        option, arguments = "useOfflineIpuTarget", ""
    elif options.connection_type in (ConnectionType.Never, ConnectionType.PreCompile):
        option, arguments = "connectionType", str(options.connection_type)
    else:
        return ""
    return (f"[{option}] Trying to run a model on an offline device: options.{option}({arguments}) "
            f"was called. Compile and save it here, and run it under other options.")

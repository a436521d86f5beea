"""Options about where tensors are stored."""

from typing import Any, Self

from poptorch._base.checks import Bool, Check, Int, OrNone
from poptorch.options._group import OptionGroup, plain, say_once
from poptorch.options._row import option

_COUNT = OrNone(Int(0))
_YES_OR_NO = OrNone(Bool())


class TensorLocationSettings(OptionGroup):
    """Where the tensors of one kind are stored. Settings that were not made are None.

    Args:
        default_values: first values of settings, by name.

    Example:
        >>> import poptorch
        >>> location = poptorch.TensorLocationSettings().useOnChipStorage(False)
        >>> location["onChip"], location
        (False, TensorLocationSettings(onChip=False))
    """

    _PREFIX = "TensorLocationSettings."

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    @option("onChip", None, _YES_OR_NO, example=False)
    def useOnChipStorage(self, use: bool | None = True) -> Self:
        """Stores the tensors in the IPU's own memory, or in streaming memory.

        The placed program moves what is in streaming memory by the ops ``remote_load`` and
        ``remote_store``, which say how many bytes; results do not change.

        Args:
            use: True: on the chip. False: off the chip. None: as the strategy has it, which is
                on the chip but in phased execution.
        """

    @option("minElementsForOffChip", None, _COUNT, example=4, default_text="2")
    def minElementsForOffChip(self, min_elements: int) -> Self:
        """Keeps small tensors on the chip.

        Args:
            min_elements: tensors of fewer elements stay; at least 0, without a call 2.
        """

    @option("useReplicatedTensorSharding", None, _YES_OR_NO)
    def useReplicatedTensorSharding(self, use: bool = True) -> Self:
        """Lets each replica hold a part of the tensors; for weights and optimizer states.

        Activations and accumulated gradients differ between replicas: they stay whole, and a
        warning says so. Gradients are reduced by ``reduce_scatter``, each replica updates its
        part, and ``all_gather`` puts tensors together where they are used. Results do not change.
        ``memory_report()["sharding"]`` says what is sharded, and why other tensors are not.

        Args:
            use: True: a part. False: all.
        """

    @option("minElementsForReplicatedTensorSharding", None, _COUNT, example=8192, default_text="0")
    def minElementsForReplicatedTensorSharding(self, min_elements: int) -> Self:
        """Keeps small tensors whole on each replica.

        Args:
            min_elements: tensors of more elements are sharded; at least 0, without a call 0.
        """

    @option("useIOTilesToLoad", None, _YES_OR_NO)
    def useIOTilesToLoad(self, use: bool = True) -> Self:
        """Loads the tensors from streaming memory through the I/O tiles, while others compute.

        It needs ``TensorLocations.numIOTiles``; without it, nothing changes and a warning says so.
        ``remote_load`` in the IR has the attribute ``tiles``. The timeline shows it for weights,
        and for activations between tasks. Results do not change.

        Args:
            use: True: I/O tiles. False: compute tiles.
        """

    @option("useIOTilesToStore", None, _YES_OR_NO)
    def useIOTilesToStore(self, use: bool = True) -> Self:
        """Stores the tensors in streaming memory through the I/O tiles, while others compute.

        It needs ``TensorLocations.numIOTiles``; without it, nothing changes and a warning says so.
        ``remote_store`` in the IR has the attribute ``tiles``. The timeline shows it for
        activations between tasks. Results do not change.

        Args:
            use: True: I/O tiles. False: compute tiles.
        """


class _IoTiles(Check):
    text = "0, or an even number from 32 to 192"
    errors = (AssertionError,)

    def __call__(self, value, option: str) -> int:
        is_int = isinstance(value, int) and not isinstance(value, bool)
        if not is_int or value != 0 and (value % 2 or not 32 <= value <= 192):
            raise AssertionError(str(self.out_of_range(value, option)))
        return value


class _Location(Check):
    text = "a poptorch.TensorLocationSettings"
    errors = (TypeError,)
    kinds = (TensorLocationSettings, dict)

    def allows(self, value) -> bool:
        return not isinstance(value, dict) or all(isinstance(key, str) for key in value)

    def kept(self, value) -> dict:
        # A dict is such as toDict gives it.
        value = TensorLocationSettings(**value) if isinstance(value, dict) else value
        return plain(value.toDict())


_UNDEFINED = TensorLocationSettings().toDict()
_OFF_CHIP = TensorLocationSettings(onChip=False)
# The compiler's names for kinds of tensors and for what TensorLocationSettings.onChip says.
_ROLES = {"location_activation": "activation", "location_weight": "parameter",
          "location_optimizer": "optimizer", "location_accumulator": "accumulator"}
# Tensors that replicas do not have alike.
_DIFFERING = {"location_accumulator": "setAccumulatorLocation",
              "location_activation": "setActivationLocation"}
# Fields of StepSpec.
_SHARDED = {"location_optimizer": "sharded_optimizer", "location_weight": "sharded_weights"}
# Attributes of the op ``tensor_location``.
_TILES = {"useIOTilesToLoad": "load_tiles", "useIOTilesToStore": "store_tiles"}
_STORAGE = {True: "on_chip", False: "off_chip"}


class _TensorLocationOptions(OptionGroup):
    """Options about where tensors are stored: ``options.TensorLocations``.

    Args:
        default_values: first values of options, by name.

    Example:
        >>> import poptorch
        >>> off_chip = poptorch.TensorLocationSettings().useOnChipStorage(False)
        >>> opts = poptorch.Options()
        >>> _ = opts.TensorLocations.setWeightLocation(off_chip)
        >>> opts.TensorLocations.location_weight["onChip"]
        False
    """

    _PREFIX = "TensorLocations."

    def _for_compiler(self) -> tuple[tuple[str, tuple[tuple[str, str | int], ...]], ...]:
        """Role and attributes of each op ``tensor_location`` that the options require."""
        found = []
        for name, role in _ROLES.items():
            location, attrs = self._values[name], {}
            if location["onChip"] is not None:
                attrs["storage"] = _STORAGE[location["onChip"]]
            if location["minElementsForOffChip"] is not None:
                attrs["least_elements"] = location["minElementsForOffChip"]
            for method, attr in _TILES.items():
                if not location[method]:
                    continue
                if self._values["num_io_tiles"]:
                    attrs[attr] = "io"
                else:
                    say_once(method, f"[TensorLocationSettings.{method}] it has no effect: there "
                                     f"are no IO tiles. Call TensorLocations.numIOTiles(32).")
            if attrs:
                found.append((role, tuple(attrs.items())))
        return tuple(found)

    def _sharded(self) -> dict[str, int | None]:
        """For weights and states of the optimizer: of more than how many elements those are that
        are sharded; None: none are."""
        found = {}
        for name, setter in _DIFFERING.items():
            if self._values[name]["useReplicatedTensorSharding"]:
                say_once(setter, f"[TensorLocations.{setter}] useReplicatedTensorSharding has no "
                                 f"effect on these tensors: each replica has values of its own. "
                                 f"Use it for weights and states of the optimizer.")
        for name, step in _SHARDED.items():
            location = self._values[name]
            least = location["minElementsForReplicatedTensorSharding"] or 0
            found[step] = least if location["useReplicatedTensorSharding"] else None
        return found

    @option("num_io_tiles", 0, _IoTiles(), example=64, backend="numIOTiles", step="io_tiles")
    def numIOTiles(self, num_tiles: int) -> Self:
        """Sets how many tiles of each IPU only transfer data, while the others compute.

        :func:`poptorch.set_overlap_for_input`, :func:`poptorch.set_overlap_for_output`,
        ``useIOTilesToLoad`` and ``useIOTilesToStore`` say what they transfer. The op ``strategy``
        in the IR has the attribute ``io_tiles``. Results do not change.

        Args:
            num_tiles: an even number from 32 to 192; or 0, the default: none.
        """

    @option("location_activation", _UNDEFINED, _Location(), example=_OFF_CHIP)
    def setActivationLocation(self, location: TensorLocationSettings) -> Self:
        """Sets where activations are stored.

        Off the chip: what the backward pass reads is stored after the forward pass, and loaded
        when it is read. Inference has nothing to store.

        Args:
            location: the settings; later changes to them have no effect here.
        """

    @option("location_weight", _UNDEFINED, _Location(), example=_OFF_CHIP)
    def setWeightLocation(self, location: TensorLocationSettings) -> Self:
        """Sets where weights are stored.

        Off the chip: each pass loads a parameter when it reads it, the update stores it.

        Args:
            location: the settings; later changes to them have no effect here.
        """

    @option("location_optimizer", _UNDEFINED, _Location(), example=_OFF_CHIP)
    def setOptimizerLocation(self, location: TensorLocationSettings) -> Self:
        """Sets where the states of the optimizer are stored.

        Off the chip: the update loads and stores them.

        Args:
            location: the settings; later changes to them have no effect here.
        """

    @option("location_accumulator", _UNDEFINED, _Location(), example=_OFF_CHIP)
    def setAccumulatorLocation(self, location: TensorLocationSettings) -> Self:
        """Sets where accumulated gradients are stored.

        Off the chip: each micro-batch loads and stores the sum so far. Without
        ``Training.gradientAccumulation`` there is none.

        Args:
            location: the settings; later changes to them have no effect here.
        """

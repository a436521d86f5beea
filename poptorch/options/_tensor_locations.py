"""Options about where tensors are stored."""

from typing import Any, Self

from poptorch._base.checks import Bool, Check, Int, OrNone
from poptorch.options._group import OptionGroup, Row, plain

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
    _ROWS = (
        Row("onChip", None, "In the IPU's own memory.", _YES_OR_NO, "useOnChipStorage"),
        Row("minElementsForOffChip", None, "Smaller tensors stay on the chip; None: 2.", _COUNT,
            "minElementsForOffChip"),
        Row("useReplicatedTensorSharding", None, "Each replica holds a part.", _YES_OR_NO,
            "useReplicatedTensorSharding", later="sharding"),
        Row("minElementsForReplicatedTensorSharding", None,
            "Tensors of no more elements are whole on each replica.", _COUNT,
            "minElementsForReplicatedTensorSharding", later="sharding"),
        Row("useIOTilesToLoad", None, "Load through I/O tiles.", _YES_OR_NO, "useIOTilesToLoad",
            later="schedules"),
        Row("useIOTilesToStore", None, "Store through I/O tiles.", _YES_OR_NO,
            "useIOTilesToStore", later="schedules"),
    )

    def __init__(self, **default_values: Any):
        super().__init__(**default_values)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def useOnChipStorage(self, use: bool | None = True) -> Self:
        """Stores the tensors in the IPU's own memory, or in streaming memory.

        The placed program moves what is in streaming memory by the ops ``remote_load`` and
        ``remote_store``, which say how many bytes; results do not change.

        Args:
            use: True: on the chip. False: off the chip. None: as the strategy has it, which is
                on the chip but in phased execution.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Neither a bool nor None.

        Example:
            >>> import poptorch
            >>> poptorch.TensorLocationSettings().useOnChipStorage(False)
            TensorLocationSettings(onChip=False)
        """
        return self._set("onChip", use)

    def minElementsForOffChip(self, min_elements: int) -> Self:
        """Keeps small tensors on the chip.

        Args:
            min_elements: tensors of fewer elements stay; at least 0, without a call 2.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not an int.
            ValueError: Less than 0.

        Example:
            >>> import poptorch
            >>> poptorch.TensorLocationSettings().minElementsForOffChip(4)
            TensorLocationSettings(minElementsForOffChip=4)
        """
        return self._set("minElementsForOffChip", min_elements)

    def useReplicatedTensorSharding(self, use: bool = True) -> Self:
        """Lets each replica hold a part of the tensors; for weights and optimizer states.

        Args:
            use: True: a part. False: all.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a bool.

        Example:
            >>> import poptorch
            >>> poptorch.TensorLocationSettings().useReplicatedTensorSharding()
            TensorLocationSettings(useReplicatedTensorSharding=True)
        """
        return self._set("useReplicatedTensorSharding", use)

    def minElementsForReplicatedTensorSharding(
            self, min_elements: int) -> Self:
        """Keeps small tensors whole on each replica.

        Args:
            min_elements: tensors of more elements are sharded; at least 0.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not an int.
            ValueError: Less than 0.

        Example:
            >>> import poptorch
            >>> poptorch.TensorLocationSettings().minElementsForReplicatedTensorSharding(8192)
            TensorLocationSettings(minElementsForReplicatedTensorSharding=8192)
        """
        return self._set("minElementsForReplicatedTensorSharding", min_elements)

    def useIOTilesToLoad(self, use: bool = True) -> Self:
        """Loads the tensors through the I/O tiles.

        Args:
            use: True: I/O tiles. False: compute tiles.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a bool.

        Example:
            >>> import poptorch
            >>> poptorch.TensorLocationSettings().useIOTilesToLoad()
            TensorLocationSettings(useIOTilesToLoad=True)
        """
        return self._set("useIOTilesToLoad", use)

    def useIOTilesToStore(self, use: bool = True) -> Self:
        """Stores the tensors through the I/O tiles.

        Args:
            use: True: I/O tiles. False: compute tiles.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a bool.

        Example:
            >>> import poptorch
            >>> poptorch.TensorLocationSettings().useIOTilesToStore()
            TensorLocationSettings(useIOTilesToStore=True)
        """
        return self._set("useIOTilesToStore", use)


class _IoTiles(Check):
    text = "0, or an even number from 32 to 192"

    def __call__(self, value, option: str) -> int:
        is_int = isinstance(value, int) and not isinstance(value, bool)
        if not is_int or value != 0 and (value % 2 or not 32 <= value <= 192):
            raise AssertionError(str(self.out_of_range(value, option)))
        return value


class _Location(Check):
    text = "a poptorch.TensorLocationSettings"

    def __call__(self, value, option: str) -> dict:
        if isinstance(value, dict) and all(isinstance(name, str) for name in value):
            # As toDict gives it.
            value = TensorLocationSettings(**value)
        if not isinstance(value, TensorLocationSettings):
            raise self.wrong_type(value, option)
        return plain(value.toDict())


_UNDEFINED = TensorLocationSettings().toDict()
# The compiler's names for kinds of tensors and for what TensorLocationSettings.onChip says.
_ROLES = {"location_activation": "activation", "location_weight": "parameter",
          "location_optimizer": "optimizer", "location_accumulator": "accumulator"}
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
    _ROWS = (
        Row("num_io_tiles", 0, "Tiles of each IPU that only transfer.", _IoTiles(),
            "numIOTiles", later="schedules", backend="numIOTiles"),
        Row("location_activation", _UNDEFINED, "Where activations are.", _Location(),
            "setActivationLocation"),
        Row("location_weight", _UNDEFINED, "Where weights are.", _Location(),
            "setWeightLocation"),
        Row("location_optimizer", _UNDEFINED, "Where states of the optimizer are.", _Location(),
            "setOptimizerLocation"),
        Row("location_accumulator", _UNDEFINED, "Where accumulated gradients are.", _Location(),
            "setAccumulatorLocation"),
    )

    def __init__(self, **default_values: Any):
        super().__init__(**default_values)

    def _for_compiler(self) -> tuple[tuple[str, tuple[tuple[str, str | int], ...]], ...]:
        """Role and attributes of each op ``tensor_location`` that the options require."""
        found = []
        for name, role in _ROLES.items():
            location, attrs = self._values[name], {}
            if location["onChip"] is not None:
                attrs["storage"] = _STORAGE[location["onChip"]]
            if location["minElementsForOffChip"] is not None:
                attrs["least_elements"] = location["minElementsForOffChip"]
            if attrs:
                found.append((role, tuple(attrs.items())))
        return tuple(found)

    def numIOTiles(self, num_tiles: int) -> Self:
        """Sets how many tiles of each IPU only transfer data, while the others compute.

        Args:
            num_tiles: an even number from 32 to 192; or 0, the default: none.

        Returns:
            This object, so that calls can be chained.

        Raises:
            AssertionError: Another value.

        Example:
            >>> import poptorch
            >>> poptorch.Options().TensorLocations.numIOTiles(64)
            TensorLocationOptions(num_io_tiles=64)
        """
        return self._set("num_io_tiles", num_tiles)

    def setActivationLocation(self, location: TensorLocationSettings) -> Self:
        """Sets where activations are stored.

        Off the chip: what the backward pass reads is stored after the forward pass, and loaded
        when it is read. Inference has nothing to store.

        Args:
            location: the settings; later changes to them have no effect here.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a TensorLocationSettings.

        Example:
            >>> import poptorch
            >>> off_chip = poptorch.TensorLocationSettings().useOnChipStorage(False)
            >>> opts = poptorch.Options().TensorLocations.setActivationLocation(off_chip)
            >>> opts.location_activation["onChip"]
            False
        """
        return self._set("location_activation", location)

    def setWeightLocation(self, location: TensorLocationSettings) -> Self:
        """Sets where weights are stored.

        Off the chip: each pass loads a parameter when it reads it, the update stores it.

        Args:
            location: the settings; later changes to them have no effect here.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a TensorLocationSettings.

        Example:
            >>> import poptorch
            >>> off_chip = poptorch.TensorLocationSettings().useOnChipStorage(False)
            >>> opts = poptorch.Options().TensorLocations.setWeightLocation(off_chip)
            >>> opts.location_weight["onChip"]
            False
        """
        return self._set("location_weight", location)

    def setOptimizerLocation(self, location: TensorLocationSettings) -> Self:
        """Sets where the states of the optimizer are stored.

        Off the chip: the update loads and stores them.

        Args:
            location: the settings; later changes to them have no effect here.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a TensorLocationSettings.

        Example:
            >>> import poptorch
            >>> sharded = poptorch.TensorLocationSettings().useReplicatedTensorSharding(True)
            >>> opts = poptorch.Options().TensorLocations.setOptimizerLocation(sharded)
            >>> opts.location_optimizer["useReplicatedTensorSharding"]
            True
        """
        return self._set("location_optimizer", location)

    def setAccumulatorLocation(self, location: TensorLocationSettings) -> Self:
        """Sets where accumulated gradients are stored.

        Off the chip: each micro-batch loads and stores the sum so far. Without
        ``Training.gradientAccumulation`` there is none.

        Args:
            location: the settings; later changes to them have no effect here.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a TensorLocationSettings.

        Example:
            >>> import poptorch
            >>> off_chip = poptorch.TensorLocationSettings().useOnChipStorage(False)
            >>> opts = poptorch.Options().TensorLocations.setAccumulatorLocation(off_chip)
            >>> opts.location_accumulator["onChip"]
            False
        """
        return self._set("location_accumulator", location)

"""The back door: options by the names that the back end of other PopTorch versions gives them."""

import copy
from typing import Any, Self

from poptorch._base.checks import Bool, Int, near_names
from poptorch.errors import Error
from poptorch.options._group import OptionGroup, plain, say_once
from poptorch.options._row import Row, row

# Keys that programs set and that change nothing here. A name with a dot at its end stands for a
# group of keys.
_WITHOUT_EFFECT = frozenset("""
    accumulateOuterFragmentSettings. aliasZeroCopy autoRecomputation automaticLossScalingSettings.
    batchSerializationSettings. compilationProgressLogger constantWeights convolutionOptions
    customCodelets decomposeGradSum defaultBufferingDepth defaultPrefetchBufferingDepth
    delayVarUpdates disableGradAccumulationTensorStreams disableOptimizerStateTensorStreams
    dotChecks dotOpNames enableDistributedReplicatedGraphs enableEfficientOverlapIOTopoCons
    enableExplicitIR enableExplicitMainLoops enableFullyConnectedPass
    enableGradientAccumulation enableInplaceAmbiguityChecking enableLoadAndOffloadRNGState
    enableMergeExchange enableNonStableSoftmax enableOutlining enableOutliningCopyCostPruning
    enablePipelining enablePrefetchDatastreams enableReplicatedGraphs enableSerializedMatmuls
    enableVariablesCaching engineOptions executionPhaseSettings. explicitPipeliningEnabled
    explicitRecomputation exportPoplarComputationGraph exportPoplarVertexGraph finalDotOp
    firstDotOp gclOptions groupHostSync groupNormStridedChannelGrouping hardwareInstrumentations
    kahnTieBreaker lstmOptions matmulOptions mergeVarUpdate mergeVarUpdateMemThreshold
    numIOTilesOverride opxAliasChecking opxModifyChecking outlineSequenceBreakCost
    outlineThreshold partitionSize prefetchBufferingDepthMap rearrangeAnchorsOnHost
    rearrangeStreamsOnHost replicatedCollectivesSettings. reportOptions
    saveInitializersToFile scheduleNonWeightUpdateGradientConsumersEarly
    separateCallOpPdfs serializedPoprithmsShiftGraphsDir strictOpVersions
    subgraphCopyingStrategy subgraphMemoryOptimizer swapLimitScheduler syntheticDataMode
    timeLimitScheduler transitiveClosureOptimizationThreshold
    useHostCopyOps useLoopCandidateCreator virtualGraphMode
""".split())

# The keys of the dictionaries that some of them take.
_INNER = {key: frozenset(names.split()) for key, names in {
    "engineOptions": """
        autoReport.all autoReport.directory autoReport.executionProfileProgramRunCount
        autoReport.outputArchive autoReport.outputDebugInfo autoReport.outputExecutionProfile
        autoReport.outputGraphProfile autoReport.outputLoweredVars autoReport.outputSerializedGraph
        autoReport.streamAtEachRun debug.allowOutOfMemory debug.branchRecordTile
        debug.computeInstrumentationLevel debug.cpuMultiThreadExecution debug.executionProfile
        debug.floatPointOpException debug.instrument debug.instrumentCompute
        debug.instrumentControlFlow debug.instrumentExternalExchange debug.loweredVarDumpFile
        debug.nanOverflowException debug.outputAllSymbols debug.retainDebugInformation
        debug.runtimeVerify debug.trace debug.traceFile debug.verify exchange.enablePrefetch
        exchange.multicastPolicy exchange.streamBufferOverlap opt.enableInlining
        opt.enableMultiAccessCopies opt.enableSwSyncs opt.internalExchangeOptimisationTarget
        opt.limitVertexStateToLower256K opt.maxCompilationThreads opt.maxLinkerThreads
        opt.useAutoloader prng.enable prng.seed profiler.format profiler.includeCycleEstimates
        profiler.includeFlopEstimates profiler.perExecutionStreamCopyCycles
        profiler.replicaToProfile profiler.useZstd streamCallbacks.maxLookahead
        streamCallbacks.multiThreadMode streamCallbacks.numWorkerThreads
        target.deterministicWorkers target.extendedMemory target.gatewayMode
        target.gatewayWriteCombining target.hostSyncTimeout target.saveArchive
        target.supervisorStackSizeInBytes target.syncConfiguration target.syncMethod
        target.syncPollPeriodUs target.syncReplicasIndependently target.workerStackSizeInBytes""",
    "convolutionOptions": """
        availableMemoryProportion enableConvDithering enableFastReduce enableMultiStageReduce
        enableSingleInputReduce interIpuPartialsType interTilePartialsType partialsType pass
        planConstraints planConstraintsOutputFilename remapOutputTensor use128BitConvUnitLoad""",
    "matmulOptions": """
        availableMemoryProportion enableFastReduce enableMultiStageReduce fullyConnectedPass
        inputRHSIsPreArranged partialsType planConstraints remapOutputTensor
        use128BitConvUnitLoad""",
    "lstmOptions": """
        availableMemoryProportion inferenceOnly numShards partialsType preCalcWeights
        recomputationMode rnnCodeReuse rnnStepsPerWU weightAccumulatorsType""",
    "gclOptions": """
        link maxBytesPerTile method syncful.maxBroadcastSize
        syncful.useForwardingToSupportStridingRing syncful.useOptimisedLayout topology
        useSynclessCollectives""",
    "reportOptions": """
        showExecutionSteps showOptimizations showPerIpuMemoryUsage showVarStorage
        useBufferedOutput""",
}.items()}
# Values of autoRecomputation that Training.recomputation does not have.
_OTHER_RECOMPUTATION = {1: "Standard", 2: "NormOnly", 4: "RecomputeAll"}
# False turns the cache of executables off, whatever its path is.
_SWITCHES = frozenset({"enableEngineCaching"})
# Those that enable the report of Options.enableProfiling.
_WITH_EFFECT = frozenset({"autoReport.all", "autoReport.directory"})


class _PopartOptions(OptionGroup):
    """Options by back-end key: ``options._Popart``, also ``options._popart``.

    A key that has a counterpart among the options sets it, and every such option is seen here
    once it is set. Other known keys are kept and change nothing, with one warning for each; an
    unknown key raises an error when the model is compiled. The same holds for keys of dictionaries
    such as ``engineOptions``: its keys ``autoReport.all`` and ``autoReport.directory`` act as in
    ``POPLAR_ENGINE_OPTIONS``.

    Example:
        >>> import poptorch
        >>> opts = poptorch.Options()
        >>> _ = opts._Popart.set("accumulationFactor", 4)
        >>> opts.Training.gradient_accumulation, opts._popart.options
        (4, {'accumulationFactor': 4})
    """

    _PREFIX = "_Popart."
    _NO_SETTERS = OptionGroup._NO_SETTERS | {"check_known"}

    def __init__(self) -> None:
        super().__init__()
        self._own: dict = {}
        # Of keys that have a counterpart: the value that was set, and that of the counterpart then.
        self._given: dict[str, tuple] = {}
        self._groups: list[OptionGroup] = []

    def _add(self, group: OptionGroup) -> None:
        self._groups.append(group)

    def _counterparts(self) -> dict[str, tuple[OptionGroup, Row]]:
        return {row.backend: (group, row) for group in self._groups for row in group._ROWS
                if row.backend}

    @property
    def options(self) -> dict[str, Any]:
        """The keys that were set so far, with the values that they were given here; or by setters
        that have a key, with their values as JSON supports them; None takes a key away."""
        found = {}
        for key, (group, row) in self._counterparts().items():
            value = group._values[row.name]
            given, meant = self._given.get(key, (None, None))
            if key in self._given and value == meant:
                found[key] = given
            elif value is not None and (row.name in group._chosen or value != row.default):
                found[key] = plain(value)
        return {**found, **self._own}

    def set(self, key: str, value: Any) -> Self:
        """Sets an option by its back-end key.

        Args:
            key: the key; parts of a group of keys stand after a dot.
            value: a bool, int, float or str; a list or set of str or int; or a dict from str to
                str.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: A value of another type.
            AttributeError: The options are in use.

        Example:
            >>> import poptorch
            >>> poptorch.Options()._Popart.set("outlineThreshold", 10.0).options
            {'outlineThreshold': 10.0}
        """
        self.checkIsFrozen(key)
        _check_value(key, value)
        is_number = isinstance(value, int)
        if key == "autoRecomputation" and is_number and value in _OTHER_RECOMPUTATION:
            say_once(f"_Popart {key} {value}",
                     f"[_Popart] autoRecomputation={value} ({_OTHER_RECOMPUTATION[value]}) has no "
                     f"effect. Use 0 (none), 3 (pipelines) or poptorch.recomputationCheckpoint.")
            self._own[key] = value
            return self
        if key in self._counterparts():
            group, row = self._counterparts()[key]
            group._load(row.name, value)
            self._given[key] = copy.deepcopy((value, group._values[row.name]))
            self._own.pop(key, None)
            return self
        self._own[key] = copy.deepcopy(value)
        if key in _INNER:
            for name in sorted(_INNER[key] & value.keys() - _WITH_EFFECT):
                _say_no_effect(f"{key} {name}")
        elif self._is_without_effect(key):
            _say_no_effect(key)
        return self

    @row("patterns", {}, None, doc="Graph transformations to switch on or off.")
    @row("patterns_level", None, None, doc="Which set of transformations to begin with.")
    def setPatterns(self, patterns: dict[str, bool], level: int = 2) -> Self:
        """Switches graph transformations of the back end on or off; kept, and without effect.

        Args:
            patterns: whether to use each, by name.
            level: which set to begin with, 0 (none) to 3 (all), default 2.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a dict from str to bool.
            ValueError: No such level.

        Example:
            >>> import poptorch
            >>> poptorch.Options()._Popart.setPatterns({"TiedGather": True}, 1).patterns
            {'TiedGather': True}
        """
        if not isinstance(patterns, dict) or not all(isinstance(n, str) for n in patterns):
            raise TypeError(f"[_Popart.setPatterns] expected a dict from names to bool, got "
                            f"{patterns!r}.")
        for name, use in patterns.items():
            Bool()(use, f"_Popart.setPatterns {name}")
        Int(0, 3)(level, "_Popart.setPatterns level")
        self._set("patterns", {**self.patterns, **patterns})
        _say_no_effect("setPatterns")
        return self._set("patterns_level", level)

    def _is_without_effect(self, key: str) -> bool:
        return key in _WITHOUT_EFFECT or key.split(".")[0] + "." in _WITHOUT_EFFECT

    def check_known(self) -> None:
        """Raises when an unknown key was set; called at the start of a compilation.

        Raises:
            poptorch.Error: An unknown key was set, also in the dictionary of a key; the message
                lists keys with similar names.
        """
        known = [*self._counterparts(), *_WITHOUT_EFFECT, *_SWITCHES]
        for key in self._own:
            if not self._is_without_effect(key) and key not in _SWITCHES:
                raise Error(f"[_Popart.set] unknown option {key!r}.{near_names(key, known)} "
                            f"Take the line out, or set the option by its own method.")
            for name in self._own[key] if key in _INNER else ():
                if name not in _INNER[key]:
                    raise Error(f"[_Popart.set] {key}: unknown option {name!r}."
                                f"{near_names(name, sorted(_INNER[key]))} Take it out.")

    def toDict(self) -> dict[str, Any]:
        """The keys that were set, with values that JSON supports; patterns if there are."""
        patterns = {name: value for name, value in self._values.items()
                    if value != self._row(name).default}
        return plain({**self.options, **patterns})

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and self._own == other._own

    __hash__ = None

    def _changed(self) -> list[str]:
        return [*super()._changed(), *(f"{key}={value!r}" for key, value in self._own.items())]


def _say_no_effect(key: str) -> None:
    say_once(f"_Popart {key}", f"[_Popart] {key} has no effect in this version of poptorch.")


def _check_value(key: str, value) -> None:
    if not isinstance(key, str):
        raise TypeError(f"[_Popart.set] expected a str as key, got {type(key).__name__} {key!r}.")
    if key in _INNER and not isinstance(value, dict):
        raise TypeError(f"[_Popart.set] {key}: expected a dict from str to str, got "
                        f"{type(value).__name__} {value!r}.")
    is_good = isinstance(value, (bool, int, float, str))
    if isinstance(value, (list, tuple, set, frozenset)):
        is_good = all(isinstance(item, (str, int)) for item in value)
    elif isinstance(value, dict):
        is_good = all(isinstance(item, str) for pair in value.items() for item in pair)
    if not is_good:
        raise TypeError(f"[_Popart.set] {key}: expected a bool, int, float, str, a list or set of "
                        f"str or int, or a dict from str to str, got {type(value).__name__} "
                        f"{value!r}.")

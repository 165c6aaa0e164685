"""From a resource to everything its pods are made of: the one place where an absent field gets its value.

The result has no optional field whose meaning somebody else would have to know. Defaults are constants of
`api.v1alpha1.defaults` (also named in the field descriptions) or settings of the operator (the images).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qwen_cached_serve.api import quantity
from qwen_cached_serve.api.v1alpha1 import QwenCachedServe, defaults
from qwen_cached_serve.api.v1alpha1.cache import CacheSpec
from qwen_cached_serve.api.v1alpha1.engine import EngineSpec, GpuSpec, VllmSpec
from qwen_cached_serve.api.v1alpha1.environment import EnvVar, ResourceRequirements, SecretKeySelector
from qwen_cached_serve.api.v1alpha1.model import DownloadVolume, ModelImageSource
from qwen_cached_serve.api.v1alpha1.operations import BlockSizeProbeSpec, RolloutSpec, ServiceSpec, UnsupportedSpec
from qwen_cached_serve.api.v1alpha1.pod import PodSpec
from qwen_cached_serve.core.beside import Beside, beside
from qwen_cached_serve.core.budget import CPU_KV_SPACE_VARIABLE, Budget, BudgetInputs, budget
from qwen_cached_serve.core.catalogue import lookup
from qwen_cached_serve.core.defaults import OperatorDefaults, vllm_version_of
from qwen_cached_serve.core.idle_gpus import idle_gpus
from qwen_cached_serve.core.serve_settings import Decided, serve_settings, source_type
from qwen_cached_serve.core.tiers import claims, secret_variables
from qwen_cached_serve.inpod.facts import ServeSettings
from qwen_cached_serve.inpod.flags import WARNED_ENV

BYTES_PER_PARAMETER = 2
"""bfloat16, the dtype of every checkpoint in the catalogue."""


class ResolveError(ValueError):
    """A resource that passed validation and still cannot be carried out; `field` names what to change."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Where the checkpoint's files come from and where downloads go."""

    source: str
    """`HuggingFace`, `PersistentVolumeClaim` or `Image`."""
    claim_name: str | None = None
    image: ModelImageSource | None = None
    token: SecretKeySelector | None = None
    endpoint: str | None = None
    offline: bool = False
    download_claim: str | None = None
    """Claim for downloads and compile caches; None = an emptyDir."""
    download_limit: str | None = None
    """Size limit of that emptyDir."""


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """The GPUs of one pod and how the cache server sees them."""

    count: int
    resource_name: str
    runtime_class: str | None
    """None when the runtime of another vendor needs none."""

    @property
    def nvidia(self) -> bool:
        """Whether the resource belongs to NVIDIA's device plugin (MIG slices included)."""
        return self.resource_name.startswith("nvidia.com/")


@dataclass(frozen=True, slots=True)
class Timing:
    """Time budgets of a pod's life, in seconds."""

    startup: int
    probe: int
    grace: int
    drain_pause: int
    """Wait before the engine is told to stop, so that Service endpoints forget the pod first."""
    shutdown: int
    """Time the engine gives running requests after that."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """One resource, decided."""

    name: str
    namespace: str
    uid: str
    generation: int
    lifecycle: str
    replicas: int
    """As the resource asks; `Stopped` does not change it."""
    image: str
    image_given: bool
    """Whether the spec names the image; otherwise it is the operator's."""
    image_pull_policy: str
    vllm_version: str | None
    """As far as the image's tag tells it; the probe knows for sure."""
    settings: ServeSettings
    model: ModelFiles
    gpu: GpuRequest | None
    budget: Budget
    timing: Timing
    engine_env: tuple[EnvVar, ...]
    cache_env: tuple[EnvVar, ...]
    l2_claims: Mapping[str, str]
    """Claim of every file-system tier, by the tier's name."""
    l2_secrets: Mapping[str, SecretKeySelector]
    """Variables of the cache server that come from Secrets, for the tiers that need some."""
    pod: PodSpec
    service_type: str
    service_port: int
    beside: Beside
    max_surge: int | str
    max_unavailable: int | str
    on_operator_upgrade: str
    """`Keep` or `Roll`."""
    on_failure: str
    """`Hold` or `RollBack`."""
    on_compatibility_change: str
    """`Isolate` or `Roll`."""
    on_unavailable: str
    """`ServeWithoutCache` or `RecyclePod`."""
    auto_tune: str
    """`Enabled` or `Disabled`: whether the operator applies remedies by itself."""
    warnings: tuple[str, ...] = ()

    @property
    def wanted_replicas(self) -> int:
        """Pods that should exist now."""
        return 0 if self.lifecycle == "Stopped" else self.replicas

    @property
    def cached(self) -> bool:
        """Whether a cache server stands beside the engine."""
        return self.settings.cache.enabled


def resolve(serve: QwenCachedServe, operator: OperatorDefaults) -> Resolved:
    """Decide every open choice of a resource that `api.validate` accepted.

    Raises:
        ResolveError: what validation could not see, with the field and the remedy.
        BudgetError: a memory figure that cannot work.

    """
    spec = serve.spec
    engine = spec.engine or EngineSpec()
    vllm = engine.vllm or VllmSpec()
    cache = spec.cache or CacheSpec()
    pod = spec.pod or PodSpec()
    accelerator = (engine.accelerator and engine.accelerator.type) or defaults.ACCELERATOR
    gpu = _gpu(engine) if accelerator == "GPU" else None
    ranks = vllm.tensor_parallel_size or (gpu.count if gpu else 1)
    enabled = (cache.mode or defaults.CACHE_MODE) == "Enabled"
    l1 = _l1_bytes(cache) if enabled else None
    timing = _timing(engine, spec.block_size_probe, pod)
    image = engine.image or operator.image_for(accelerator)
    if not image:
        raise ResolveError("spec.engine.image", "the operator is configured with no default image; name one")
    engine_env = engine.env or ()
    service = spec.service or ServiceSpec()
    rollout = spec.rollout or RolloutSpec()
    around = beside(spec, operator.readers)
    settings = serve_settings(
        serve,
        Decided(
            accelerator=accelerator,
            ranks=ranks,
            gpus=gpu.count if gpu else 0,
            l1_bytes=l1,
            startup_seconds=timing.startup,
            probe_seconds=timing.probe,
            shutdown_seconds=timing.shutdown,
        ),
    )
    vllm_version = vllm_version_of(image)
    return Resolved(
        name=serve.metadata.name,
        namespace=serve.metadata.namespace or "default",
        uid=serve.metadata.uid or "",
        generation=serve.metadata.generation or 0,
        lifecycle=spec.lifecycle or defaults.LIFECYCLE,
        replicas=spec.replicas,
        image=image,
        image_given=bool(engine.image),
        image_pull_policy=engine.image_pull_policy or defaults.IMAGE_PULL_POLICY,
        vllm_version=vllm_version,
        settings=settings,
        model=_model_files(serve),
        gpu=gpu,
        budget=budget(
            BudgetInputs(
                accelerator=accelerator,
                ranks=ranks,
                l1_bytes=l1,
                engine_requests=_part(engine.resources, "requests"),
                engine_limits=_part(engine.resources, "limits"),
                cache_requests=_part(cache.resources, "requests"),
                cache_limits=_part(cache.resources, "limits"),
                cpu_kv_space=_literal(engine_env, CPU_KV_SPACE_VARIABLE),
                weights_bytes=_weights_bytes(spec.model.name),
            )
        ),
        timing=timing,
        engine_env=engine_env,
        cache_env=cache.env or (),
        l2_claims=claims(cache.l2 or ()) if enabled else {},
        l2_secrets=secret_variables(cache.l2 or ()) if enabled else {},
        pod=pod,
        service_type=service.type or defaults.SERVICE_TYPE,
        service_port=service.port or defaults.SERVICE_PORT,
        beside=around,
        max_surge=defaults.MAX_SURGE if rollout.max_surge is None else rollout.max_surge,
        max_unavailable=defaults.MAX_UNAVAILABLE if rollout.max_unavailable is None else rollout.max_unavailable,
        on_failure=rollout.on_failure or defaults.ON_FAILURE,
        auto_tune=engine.auto_tune or defaults.AUTO_TUNE,
        on_operator_upgrade=rollout.on_operator_upgrade or defaults.ON_OPERATOR_UPGRADE,
        on_compatibility_change=rollout.on_compatibility_change or _on_compatibility_change(cache),
        on_unavailable=cache.on_unavailable or defaults.ON_UNAVAILABLE,
        warnings=(
            *_warnings(gpu, enabled, spec.unsupported, engine_env),
            *idle_gpus(settings, vllm_version or ""),
            *around.warnings,
        ),
    )


def _on_compatibility_change(cache: CacheSpec) -> str:
    """Return what applies where the resource does not say: pods are replaced where they share a store (ADR 8)."""
    return "Roll" if cache.l2 else "Isolate"


def _gpu(engine: EngineSpec) -> GpuRequest:
    gpu = (engine.accelerator and engine.accelerator.gpu) or GpuSpec()
    name = gpu.resource_name or defaults.GPU_RESOURCE_NAME
    # NVIDIA's runtime class means nothing to the devices of another vendor (B42).
    default_class = defaults.RUNTIME_CLASS_NAME if name.startswith("nvidia.com/") else None
    return GpuRequest(gpu.count or defaults.GPU_COUNT, name, gpu.runtime_class_name or default_class)


def _l1_bytes(cache: CacheSpec) -> int:
    if cache.l1 is None or cache.l1.size is None:
        raise ResolveError("spec.cache.l1.size", "required while the cache is on; set it or cache.mode: Disabled")
    return quantity.to_bytes(cache.l1.size)


def _timing(engine: EngineSpec, probe: BlockSizeProbeSpec | None, pod: PodSpec) -> Timing:
    grace = pod.termination_grace_period_seconds or defaults.TERMINATION_GRACE_PERIOD_SECONDS
    pause = min(10, grace // 6)
    # The cache server stops after the engine (4 s measured) and both want time to write their last words.
    slack = min(20, max(1, grace // 4))
    return Timing(
        startup=engine.startup_timeout_seconds or defaults.STARTUP_TIMEOUT_SECONDS,
        probe=(probe and probe.timeout_seconds) or defaults.PROBE_TIMEOUT_SECONDS,
        grace=grace,
        drain_pause=pause,
        shutdown=max(1, grace - pause - slack),
    )


def _model_files(serve: QwenCachedServe) -> ModelFiles:
    model = serve.spec.model
    kind = source_type(model.source)
    download = model.download_volume or DownloadVolume()
    claim = download.persistent_volume_claim
    limit = download.empty_dir.size_limit if download.empty_dir else None
    hub = model.source.hugging_face if model.source else None
    volume = model.source.persistent_volume_claim if model.source else None
    return ModelFiles(
        source=kind,
        claim_name=volume.claim_name if volume else None,
        image=model.source.image if model.source else None,
        token=hub.token_secret_key_ref if hub else None,
        endpoint=hub.endpoint if hub else None,
        # Files on a volume are all there is: the hub library must not ask for more (B45).
        offline=kind != "HuggingFace" or bool(hub and hub.offline == "Enabled"),
        download_claim=claim.claim_name if claim else None,
        download_limit=None if limit is None else str(limit),
    )


def _part(resources: ResourceRequirements | None, kind: str) -> dict[str, int | str]:
    return dict(getattr(resources, kind) or {}) if resources else {}


def _literal(env: tuple[EnvVar, ...], name: str) -> str | None:
    return next((variable.value for variable in env if variable.name == name), None)


def _weights_bytes(model: str) -> int:
    entry = lookup(model)
    return int(entry.parameters_billion * 10**9) * BYTES_PER_PARAMETER if entry else 0


def _warnings(
    gpu: GpuRequest | None, cached: bool, unsupported: UnsupportedSpec | None, engine_env: tuple[EnvVar, ...]
) -> tuple[str, ...]:
    warnings = []
    if gpu and not gpu.nvidia and cached:
        warnings.append(
            f"how the cache server sees a {gpu.resource_name} is not known; the start-up gate will tell whether it does"
        )
    if gpu and "/mig-" in gpu.resource_name and cached:
        warnings.append("whether the cache server finds the engine's MIG slice is not validated")
    if unsupported and (unsupported.engine_args or unsupported.cache_server_args):
        warnings.append("spec.unsupported is in use: its arguments are neither checked nor validated")
    warnings += [
        f"spec.engine.env[{name}] has no effect: {why}"
        for name, why in WARNED_ENV.items()
        if any(variable.name == name for variable in engine_env)
    ]
    return tuple(warnings)

"""What the operator uses when a field is absent: read by the models' descriptions and by `core.resolve`.

Only `REPLICAS` is also a default of the CustomResourceDefinition: the scale subresource cannot read an absent field.
"""

from __future__ import annotations

LIFECYCLE = "Running"
REPLICAS = 1
MODEL_SOURCE = "HuggingFace"
HUB_REVISION = "main"
DOWNLOAD_VOLUME = "EmptyDir"
MODALITIES = "TextOnly"
ENGINE_TYPE = "vLLM"
IMAGE_PULL_POLICY = "IfNotPresent"
ACCELERATOR = "GPU"
GPU_COUNT = 1
GPU_RESOURCE_NAME = "nvidia.com/gpu"
CACHE_ACCESS = "RuntimeClass"
RUNTIME_CLASS_NAME = "nvidia"
STARTUP_TIMEOUT_SECONDS = 3600
GPU_MEMORY_UTILIZATION_PERCENT = 90
TOKENS_PER_STEP_POLICY = "TwoBlocksMinusOne"
BLOCK_SIZE_POLICY = "Native"
AUTO_TUNE = "Enabled"
CACHE_MODE = "Enabled"
ON_UNAVAILABLE = "ServeWithoutCache"
EVICTION_POLICY = "LRU"
CHUNK_BLOCKS = 1
VALKEY_TOPOLOGY = "Standalone"
VALKEY_TLS = "Disabled"
S3_TLS = "Enabled"
TERMINATION_GRACE_PERIOD_SECONDS = 90
SERVICE_TYPE = "ClusterIP"
SERVICE_PORT = 80
POD_MONITOR = "Disabled"
NETWORK_POLICY = "Disabled"
DISRUPTION_MAX_UNAVAILABLE = 1
MAX_SURGE = 0
MAX_UNAVAILABLE = 1
ON_FAILURE = "Hold"
ON_OPERATOR_UPGRADE = "Keep"
PROBE_METHOD = "Auto"
PROBE_TIMEOUT_SECONDS = 1800

CACHE_SERVER_OVERHEAD_BYTES = 2 * 1024**3
"""Memory the cache server takes beside its L1: 0.6 GiB of libraries and indexes measured without a GPU, the rest for
the host side of a CUDA context and for bursts of transfers."""
MINIMUM_L1_BYTES = 64 * 1024**2
"""Below this not one chunk of a small model fits; a smaller figure is almost always a missing unit."""

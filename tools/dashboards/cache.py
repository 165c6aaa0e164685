"""For whoever asks what the cache is worth: hits, N, L1 and L2."""

from __future__ import annotations

from tools.dashboards.grafana import Dashboard, Panel, Query, Row
from tools.dashboards.promql import BY, RESOURCE, SERVED, SERVED_AS, conditions, mean, quantile, rate, share

CACHE = Dashboard(
    uid="qwen-cached-serve-cache",
    title="Qwen cached serving / cache effectiveness",
    variables=(
        ("namespace", "label_values(vllm:cache_config_info, namespace)"),
        ("name", 'label_values(vllm:cache_config_info{namespace=~"$namespace"}, qwencachedserve)'),
    ),
    rows=(
        Row(
            "Hits",
            (
                Panel(
                    "Prompt tokens not computed",
                    (
                        Query(
                            f"({rate('vllm:prefix_cache_hits_total')} "
                            f"+ {rate('vllm:external_prefix_cache_hits_total')}) "
                            f"/ ({rate('vllm:prefix_cache_queries_total')} > 0)",
                            SERVED_AS,
                        ),
                    ),
                    "Share of prompt tokens that came from the GPU's own prefix cache or from LMCache.",
                    unit="percentunit",
                    maximum=1,
                ),
                Panel(
                    "Local hit rate",
                    (Query(share("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"), SERVED_AS),),
                    "From the GPU's own prefix cache.",
                    unit="percentunit",
                    maximum=1,
                ),
                Panel(
                    "External hit rate",
                    (
                        Query(
                            share("vllm:external_prefix_cache_hits_total", "vllm:external_prefix_cache_queries_total"),
                            SERVED_AS,
                        ),
                    ),
                    "From LMCache, of the tokens the engine asked it for.",
                    unit="percentunit",
                    maximum=1,
                ),
                Panel(
                    "Prompt tokens by source",
                    (
                        Query(
                            f"sum by (source) (rate(vllm:prompt_tokens_by_source_total{{{SERVED}}}[$__rate_interval]))",
                            "{{source}}",
                        ),
                    ),
                    "Computed, or taken from where.",
                    unit="short",
                ),
                Panel(
                    "Hits by tier of LMCache",
                    (
                        Query(rate("lmcache_mp_lookup_hit_l1_tokens_total"), f"L1 {SERVED_AS}"),
                        Query(rate("lmcache_mp_lookup_hit_l2_tokens_total"), f"L2 {SERVED_AS}"),
                        Query(rate("lmcache_mp_lookup_requested_tokens_total"), f"asked for {SERVED_AS}"),
                    ),
                    "Tokens per second, as LMCache counts them.",
                ),
                Panel(
                    "Seconds to the first token",
                    (
                        Query(quantile(0.5, "vllm:time_to_first_token_seconds"), f"p50 {SERVED_AS}"),
                        Query(quantile(0.95, "vllm:time_to_first_token_seconds"), f"p95 {SERVED_AS}"),
                    ),
                    "What a cache is for.",
                    unit="s",
                ),
            ),
        ),
        Row(
            "Block size and engines",
            (
                Panel(
                    "Block size N",
                    (
                        Query(
                            f"count by (namespace, qwencachedserve, block_size) (vllm:cache_config_info{{{SERVED}}})",
                            instant=True,
                        ),
                    ),
                    "N as the running engines have it; two lines for one resource are a mixed fleet or a roll.",
                    kind="table",
                ),
                Panel(
                    "Cache attached",
                    (Query(conditions("CacheEffective", "True"), RESOURCE),),
                    "1 while every serving engine is registered with its cache server (condition CacheEffective).",
                    maximum=1,
                ),
                Panel(
                    "Requests",
                    (
                        Query(f"{BY} (vllm:num_requests_running{{{SERVED}}})", f"running {SERVED_AS}"),
                        Query(f"{BY} (vllm:num_requests_waiting{{{SERVED}}})", f"waiting {SERVED_AS}"),
                    ),
                    "Running and waiting in the engines.",
                ),
                Panel(
                    "KV cache of the GPU",
                    (
                        Query(
                            f"max by (pod) (vllm:kv_cache_usage_perc{{{SERVED}}})",
                            "{{pod}}",
                        ),
                    ),
                    "Near 1, requests wait or are preempted.",
                    unit="percentunit",
                    maximum=1,
                ),
                Panel(
                    "Seconds for a lookup",
                    (
                        Query(quantile(0.5, "vllm:lmcache_mp_lookup_duration_seconds"), f"p50 {SERVED_AS}"),
                        Query(quantile(0.99, "vllm:lmcache_mp_lookup_duration_seconds"), f"p99 {SERVED_AS}"),
                    ),
                    "Latency of LMCache's lookups as the engine sees it.",
                    unit="s",
                ),
                Panel(
                    "Retrievals and stores",
                    (
                        Query(rate("lmcache_mp_num_finished_retrieves_total"), f"retrieved {SERVED_AS}"),
                        Query(rate("lmcache_mp_num_finished_stores_total"), f"stored {SERVED_AS}"),
                    ),
                    "Finished per second.",
                    unit="ops",
                ),
            ),
        ),
        Row(
            "L1 and L2",
            (
                Panel(
                    "L1 in use",
                    (
                        Query(
                            f"max by (pod) (lmcache_mp_l1_usage_ratio{{{SERVED}}})",
                            "{{pod}}",
                        ),
                    ),
                    "LMCache starts to evict at 0.8.",
                    unit="percentunit",
                    maximum=1,
                ),
                Panel(
                    "L1 bytes",
                    (
                        Query(
                            f"sum by (pod) (lmcache_mp_l1_memory_usage_bytes{{{SERVED}}})",
                            "{{pod}}",
                        ),
                    ),
                    "Of spec.cache.l1.size.",
                    unit="bytes",
                ),
                Panel(
                    "L1 chunks",
                    (
                        Query(rate("lmcache_mp_l1_write_chunks_total"), f"written {SERVED_AS}"),
                        Query(rate("lmcache_mp_l1_read_chunks_total"), f"read {SERVED_AS}"),
                        Query(rate("lmcache_mp_l1_evicted_chunks_total"), f"evicted {SERVED_AS}"),
                    ),
                    "A full cache evicts what it writes; that alone is no fault.",
                    unit="ops",
                ),
                Panel(
                    "Evicted and asked for again within two minutes",
                    (
                        Query(
                            f"{BY} (rate(lmcache_mp_l1_chunk_evict_reuse_gap_seconds_bucket"
                            f'{{{SERVED},le=~"120(\\\\.0)?"}}[$__rate_interval])) / '
                            f"({rate('lmcache_mp_l1_chunk_evict_reuse_gap_seconds_count')} > 0)",
                            SERVED_AS,
                        ),
                    ),
                    "Share of evicted chunks; above one half, L1 is too small (sampled, one chunk in a hundred).",
                    unit="percentunit",
                    maximum=1,
                ),
                Panel(
                    "Speed of retrievals and stores",
                    (
                        Query(mean("lmcache_mp_l0_l1_load_throughput_GB_per_second"), f"retrieved {SERVED_AS}"),
                        Query(mean("lmcache_mp_l0_l1_store_throughput_GB_per_second"), f"stored {SERVED_AS}"),
                    ),
                    "Between the GPU and L1, mean of the requests.",
                    unit="GBs",
                ),
                Panel(
                    "L2 bytes",
                    (Query(f"{BY} (lmcache_mp_l2_usage_bytes{{{SERVED}}})", SERVED_AS),),
                    "Where the L2 adapter tells.",
                    unit="bytes",
                ),
                Panel(
                    "Failures",
                    (
                        Query(rate("lmcache_mp_l1_allocation_failure_chunks_total"), f"no room in L1 {SERVED_AS}"),
                        Query(rate("lmcache_mp_l2_prefetch_failure_chunks_total"), f"not loaded from L2 {SERVED_AS}"),
                    ),
                    "Chunks per second; requests are computed anew and succeed.",
                    unit="ops",
                ),
            ),
        ),
    ),
)

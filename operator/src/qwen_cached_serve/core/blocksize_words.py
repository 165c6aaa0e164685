"""A prediction as sentences that a person can follow with a calculator."""

from __future__ import annotations

from qwen_cached_serve.core.blocksize import PredictedBlockSize


def explain(predicted: PredictedBlockSize) -> tuple[str, ...]:
    """State, token, granularity and rounding, then what one block costs."""
    state, token, n = predicted.state_bytes, predicted.token_bytes, predicted.block_size
    groups = predicted.groups
    kernel = predicted.kernel_block_size
    return (
        (
            f"one sequence's state in a linear layer: {predicted.conv_bytes:,} B convolution + "
            f"{predicted.ssm_bytes:,} B recurrent = {state:,} B"
        ),
        f"one token's key and value in an attention layer: {token:,} B",
        f"granularity: {predicted.granularity} tokens ({predicted.granularity_reason})",
        f"{state:,} / {token:,} = {state / token:,.2f}, up to a multiple of {predicted.granularity}: N = {n}",
        (
            f"one block of one layer: {n} x {token:,} = {predicted.page_bytes:,} B; a state leaves "
            f"{predicted.padding_bytes:,} B of it unused ({predicted.padding_percent:.2f} %)"
        ),
        f"{predicted.attention_backend} works on it in blocks of {kernel} tokens"
        + (" (N itself)" if kernel == n else ""),
        (
            f"the layers form {groups.count} groups of {groups.layers_per_group} ({groups.linear} linear, "
            f"{groups.attention} attention): one block of the pool takes {predicted.pool_block_bytes:,} B on each rank"
        ),
        f"one cached token takes {predicted.bytes_per_cached_token:,} B over all layers and ranks",
    )

"""The predictor against vLLM's own answers (docs/gpu-matrix.json, made by `make gpu-matrix`), every row of them."""

from collections import Counter

import pytest

from qwen_cached_serve.core.blocksize import EngineShape, PredictionError, predict
from qwen_cached_serve.core.catalogue import known_models, lookup
from tools.gpu_matrix.cells import GENERATIONS, MODELS, RELEASES, Cell, all_cells, cells_of, generation
from tools.gpu_matrix.result import read_json
from tools.gpu_matrix.table import TABLE_FILE, render

ROWS = read_json()


def shape(cell):
    return EngineShape(
        capability=generation(cell.generation).capability,
        tensor_parallel_size=cell.tensor_parallel_size,
        kv_cache_dtype=cell.kv_cache_dtype,
        mamba_ssm_cache_dtype=cell.mamba_ssm_cache_dtype,
        speculative_tokens=cell.draft_tokens,
        attention_backend=cell.attention_backend,
        gdn_prefill_backend=cell.gdn_prefill_backend,
        block_size=cell.block_size,
        vllm_version=cell.release,
    )


def predicted(cell):
    """What we say to a cell, in the columns of the matrix; a refusal is the setting it names."""
    try:
        result = predict(lookup(cell.model).geometry, shape(cell))
    except PredictionError as error:
        return {"refused": error.field}
    return {
        "blockSize": result.block_size,
        "kernelBlockSize": result.kernel_block_size,
        "attentionBackend": result.attention_backend,
        "gdnPrefill": result.gdn_prefill_backend,
        "paddingBytes": result.padding_bytes,
    }


def mismatch(row):
    said, cell = predicted(Cell.from_row(row)), Cell.from_row(row)
    if row["refused"]:
        return None if "refused" in said else (cell, row["refused"], said)
    return None if all(row[name] == value for name, value in said.items()) else (cell, row, said)


def test_no_cell_is_missing_and_none_is_there_twice():
    assert Counter(Cell.from_row(row) for row in ROWS) == Counter(all_cells())


def test_the_matrix_covers_every_geometry_of_the_catalogue():
    shapes = {lookup(model).geometry for model in MODELS}
    assert {lookup(model).geometry for model in known_models()} == shapes


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("gpu", [gpu.name for gpu in GENERATIONS])
def test_prediction_is_what_vllm_answers(release, gpu):
    rows = [row for row in ROWS if (row["version"], row["sm"]) == (release, gpu)]
    assert len(rows) == len(cells_of(release, gpu))
    answered = [row for row in rows if row["source"] == "vllm"]
    assert [found for row in answered if (found := mismatch(row))] == []


def test_every_cell_was_answered_by_vllm():
    """A machine that cannot run a release writes `notRun`; such a matrix is not to be committed."""
    for row in ROWS:
        assert row["source"] == "vllm", (row["version"], row["reason"])
        assert bool(row["refused"]) != bool(row["blockSize"])


def test_a_wrong_prediction_would_be_seen():
    row = next(row for row in ROWS if row["source"] == "vllm" and not row["refused"])
    assert mismatch(row) is None
    assert mismatch(row | {"blockSize": row["blockSize"] + 16}) is not None
    assert mismatch(row | {"kernelBlockSize": 8}) is not None
    assert mismatch(row | {"refused": "no"}) is not None


def test_the_table_for_people_is_made_from_these_rows():
    assert TABLE_FILE.read_text(encoding="utf-8") == render(ROWS)

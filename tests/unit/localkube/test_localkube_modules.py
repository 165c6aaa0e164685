import re
import shutil
import subprocess

import pytest

from localkube import modules, paths, pin
from localkube.errors import LocalKubeError

EVERY = [
    *{m.name: m for v in modules.KUBERNETES_VERSIONS for m in modules.all_modules(v)}.values(),
    *modules.TOOLS,
]


@pytest.mark.parametrize("module", EVERY, ids=lambda m: m.name)
def test_every_binary_has_a_tool_line_and_the_files_are_there(module):
    text = (module.folder / "go.mod").read_text()
    block = re.search(r"^tool (?:\(\n(.*?)\n\)|(\S+)$)", text, re.MULTILINE | re.DOTALL)
    tools = [line.strip().split("/") for line in (block[1] or block[2]).splitlines()]
    names = {parts[-2] if re.fullmatch(r"v\d+", parts[-1]) else parts[-1] for parts in tools}
    renamed = dict(module.renamed)
    assert {renamed.get(name, name) for name in names} == set(module.binaries)
    assert len(module.source_hash()) == 64


@pytest.mark.parametrize("version", modules.KUBERNETES_VERSIONS)
def test_kubernetes_is_stamped_with_the_release_of_its_go_mod_and_its_libraries_match(version):
    module = modules.kubernetes(version)
    release = module.required_version("k8s.io/kubernetes")
    assert release.startswith(f"v{version}.")
    assert f"-X k8s.io/component-base/version.gitVersion={release}" in module.flags()[-1]
    assert f"version.gitMinor={version.split('.')[1]}" in module.flags()[-1]
    text = (module.folder / "go.mod").read_text()
    replaced = re.findall(r"^\t(k8s\.io/\S+) => (\S+) (v0\.\S+)$", text, re.MULTILINE)
    assert len(replaced) > 25
    assert {(a == b, v) for a, b, v in replaced} == {(True, "v0." + release.removeprefix("v1."))}


def test_the_key_changes_with_go_mod_go_sum_sources_and_flags(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "MODULES", tmp_path)
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "go.mod").write_text("module m\n")
    (folder / "go.sum").write_text("")
    seen = {modules.Module("m", ("m",)).source_hash(), modules.Module("m", ("m",), tags=("x",)).source_hash()}
    (folder / "go.mod").write_text("module m2\n")
    seen.add(modules.Module("m", ("m",)).source_hash())
    (folder / "go.sum").write_text("a v1 h1:x\n")
    seen.add(modules.Module("m", ("m",)).source_hash())
    (folder / "main.go").write_text("package main\n")
    seen.add(modules.Module("m", ("m",)).source_hash())
    assert len(seen) == 5


@pytest.mark.skipif(shutil.which("gofmt") is None, reason="Go is not installed")
def test_our_own_go_is_formatted():
    ours = [str(path) for path in paths.MODULES.rglob("*.go")]
    assert ours
    assert subprocess.run(["gofmt", "-l", *ours], capture_output=True, text=True, check=True).stdout == ""


def test_what_is_not_there_is_refused_with_the_choices(tmp_path, monkeypatch):
    with pytest.raises(LocalKubeError, match=r"--version 1\.9 .* 1\.34, 1\.36, 1\.37"):
        modules.kubernetes("1.9")
    with pytest.raises(LocalKubeError, match=r"--module vim .* kubernetes, etcd"):
        modules.named("vim", "1.36")
    assert modules.named("kubernetes", "1.37").name == "kubernetes-1.37"
    monkeypatch.setattr(paths, "MODULES", tmp_path)
    with pytest.raises(LocalKubeError, match=r"etcd/go\.mod is missing\. Run `go mod tidy`"):
        modules.ETCD.source_hash()


def test_only_the_modules_that_are_needed():
    assert [m.name for m in modules.modules_for(["kube-scheduler", "etcd"], "1.34")] == ["etcd", "kubernetes-1.34"]
    assert modules.modules_for([], "1.36") == []
    assert modules.modules_for(["helm"], "1.36") == [modules.HELM]
    assert not set(modules.TOOLS) & set(modules.all_modules("1.36")), "a cluster needs none of them"
    with pytest.raises(LocalKubeError, match="No module yields vim"):
        modules.modules_for(["vim"], "1.36")


def test_pin_replaces_every_staging_module():
    upstream = "module k8s.io/kubernetes\n\ngo 1.26.0\n\nreplace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n)\n"
    text = pin.go_mod("v1.40.2", upstream)
    assert "require k8s.io/kubernetes v1.40.2" in text
    assert "\tk8s.io/api => k8s.io/api v0.40.2" in text
    assert "module qwencache.dev/localkube/kubernetes-1.40\n\ngo 1.26.0" in text
    with pytest.raises(LocalKubeError, match="no staging modules"):
        pin.go_mod("v1.40.2", "go 1.26\n")
    with pytest.raises(LocalKubeError, match=r"v1\.36\.3"):
        pin.pin("1.36")

"""What the components are configured with."""

import csv
import ipaddress
import re
import ssl
import stat
import subprocess
import tomllib
from itertools import combinations
from pathlib import Path

import pytest
import yaml

from localkube import cgroups, controlplane, hostnet, kwok, node, paths, pki, ports, prereqs
from localkube.errors import LocalKubeError
from localkube.hostnet import Block
from localkube.state import Options, State


@pytest.fixture
def state(tmp_path):
    made = State(tmp_path, Options(name="t", node=True), address="10.99.0.1")
    made.ports = dict(zip([*controlplane.LOOPBACK_PORTS, "kube-apiserver"], range(20000, 20006), strict=True))
    made.tokens = controlplane.new_tokens()
    return made


def test_containerd_config_is_toml_with_own_paths(tmp_path):
    own = tmp_path / 'odd "name"'
    parsed = tomllib.loads(node.containerd_config(own, Path("/usr/lib/cni")))
    assert parsed["root"] == str(own / "containerd")
    runtime = parsed["plugins"]["io.containerd.cri.v1.runtime"]
    assert runtime["cni"] == {"bin_dirs": ["/usr/lib/cni"], "conf_dir": str(own / "cni")}
    assert runtime["restrict_oom_score_adj"] is True
    assert parsed["plugins"]["io.containerd.cri.v1.images"]["pinned_images"] == {"sandbox": "localhost/pause:1"}


def test_the_kubelet_asks_who_calls(state):
    config = node.kubelet_config(state, Block(2))
    assert config["authentication"]["anonymous"] == {"enabled": False}
    assert config["authorization"] == {"mode": "Webhook"}
    assert config["address"] == "10.99.0.10"
    assert config["cgroupRoot"] == "/localkube2"


def test_pods_do_not_get_a_resolver_on_the_hosts_loopback(tmp_path):
    usual, behind = tmp_path / "usual", tmp_path / "behind"
    usual.write_text("search x\nnameserver 127.0.0.53\noptions edns0\n")
    assert node.resolver(usual, behind) == usual, "there is nothing better"
    behind.write_text("nameserver 192.0.2.1\n")
    assert node.resolver(usual, behind) == behind
    usual.write_text("nameserver 127.0.0.53\nnameserver 192.0.2.1\n")
    assert node.resolver(usual, behind) == usual
    assert node.resolver(tmp_path / "none", behind) == tmp_path / "none"


def test_every_built_in_path_becomes_a_folder_of_the_cluster(state):
    own = node.mounts(state)
    assert set(own) == set(hostnet.MOUNT_POINTS)
    assert len(set(own.values())) == len(own)
    assert all(folder.is_relative_to(state.folder) for folder in own.values())
    script = node.holder_argv(state)[-1]
    assert script.endswith("exec sleep infinity")
    assert all(f" {path} " in f"{script} " for path in own)


def test_without_an_advertised_address_there_is_no_endpoint_to_reconcile(state):
    alone = controlplane.apiserver(state, Path("/b"), controlplane.CONTROL_PLANE_SERVICES, None)
    assert "--endpoint-reconciler-type=none" in alone
    assert not [a for a in alone if a.startswith("--advertise-address")]
    with_node = controlplane.apiserver(state, Path("/b"), Block(0).services, "10.99.0.1")
    assert {"--endpoint-reconciler-type=lease", "--advertise-address=10.99.0.1"} <= set(with_node)


def test_identities_are_private_and_carry_the_groups(state):
    pki.create(controlplane.pki(state), ["10.99.0.1"])
    controlplane.write_identities(state)
    rows = {row[2]: row for row in csv.reader((state.folder / "pki" / "tokens.csv").read_text().splitlines())}
    assert rows["admin"][1:] == ["localkube-admin", "admin", "system:masters"]
    assert rows["kubelet"][1:] == ["system:node:t-node", "kubelet", "system:nodes"]
    for name in controlplane.USERS:
        path = controlplane.kubeconfig_of(state, name)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        config = yaml.safe_load(path.read_text())
        assert config["users"][0]["user"]["token"] == rows[name][0]
        assert config["clusters"][0]["cluster"]["server"] == "https://10.99.0.1:20005"


def test_certificates_verify_strictly_and_hold_the_addresses(tmp_path):
    folder = tmp_path / "pki"
    pki.create(folder, ["127.0.0.1", "10.96.0.1"])
    for name, purpose in (
        ("apiserver", "sslserver"),
        ("etcd", "sslserver"),
        ("etcd", "sslclient"),
        ("kubelet-client", "sslclient"),
    ):
        argv = ["openssl", "verify", "-x509_strict", "-purpose", purpose, "-CAfile", "ca.crt", f"{name}.crt"]
        subprocess.run(argv, cwd=folder, check=True, capture_output=True)
    text = subprocess.run(
        ["openssl", "x509", "-in", "apiserver.crt", "-noout", "-ext", "subjectAltName"],
        cwd=folder, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert {"IP Address:127.0.0.1", "IP Address:10.96.0.1", "DNS:kubernetes.default.svc"} <= set(
        re.split(r",\s*|\s{2,}", text.strip())
    )
    assert {stat.S_IMODE(key.stat().st_mode) for key in folder.glob("*.key")} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    ssl.create_default_context(cafile=str(folder / "ca.crt"))


def test_address_blocks_do_not_meet():
    blocks = [Block(slot) for slot in range(hostnet.SLOTS)]
    assert not [
        pair for pair in combinations(blocks, 2) if pair[0].overlaps([pair[1].pods, pair[1].services, pair[1].link_net])
    ]
    for block in blocks:
        assert ipaddress.ip_address(block.host) in ipaddress.ip_network(block.link_net)
        assert ipaddress.ip_address(block.node) in ipaddress.ip_network(block.link_net)
        assert len(block.link) <= 15, "IFNAMSIZ"
    assert blocks[0].overlaps(["10.0.0.0/8"])
    assert not blocks[0].overlaps(["192.168.0.0/16", "fd00::/8", "10.0.0.0/16"])


def test_slots_are_claimed_once_and_stale_ones_reused(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RUNTIME", tmp_path / "run")
    monkeypatch.setattr(hostnet, "_routes", lambda: ["10.99.0.0/30"])
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    assert hostnet.claim(first) == hostnet.claim(first) == Block(1), "slot 0 is taken by a route"
    assert hostnet.claim(second) == Block(2)
    assert hostnet.claimed(second) == Block(2)
    hostnet.release(first)
    assert hostnet.claimed(first) is None
    second.rmdir()
    first_again = hostnet.claim(first)
    assert first_again == Block(1)
    hostnet.release(first)
    assert not paths.RUNTIME.exists()


def test_no_free_slot_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RUNTIME", tmp_path / "run")
    monkeypatch.setattr(hostnet, "_routes", lambda: ["10.0.0.0/8"])
    with pytest.raises(LocalKubeError, match=r"All 16 address blocks .* `down`"):
        hostnet.claim(tmp_path)


def test_ports_are_free_distinct_and_below_the_ephemeral_range():
    chosen = ports.choose(["a", "b", "c"], "127.0.0.1", taken=range(20000, 31000))
    assert len(set(chosen.values())) == 3
    assert all(31000 <= port < 32768 for port in chosen.values())
    with pytest.raises(LocalKubeError, match="No free TCP ports"):
        ports.choose(["a"], "127.0.0.1", taken=range(65536))


MOUNTINFO = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw
31 30 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
32 30 0:28 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
33 22 0:30 / /srv/with\\040space rw shared:2 master:1 - overlay overlay rw
"""


def test_cgroup_hierarchies_of_both_versions():
    assert cgroups.hierarchies(MOUNTINFO) == {
        Path("/sys/fs/cgroup/memory"): False,
        Path("/sys/fs/cgroup/unified"): True,
    }


def test_file_system_of_a_path():
    assert prereqs.file_system(Path("/srv/with space/x"), MOUNTINFO) == "overlay"
    assert prereqs.file_system(Path("/srv/within"), MOUNTINFO) == "ext4"


def test_missing_programs_become_one_install_line(monkeypatch):
    monkeypatch.setattr(prereqs, "cni_folder", lambda: None)
    lacking = prereqs.missing(
        ["control-plane", "node"], find=lambda program: None if program in {"runc", "nft"} else "/x"
    )
    assert prereqs.install_line(lacking) == "apt-get install -y containernetworking-plugins nftables runc"
    assert prereqs.missing(["control-plane"], find=lambda _: "/x") == []


def test_a_real_node_needs_root_and_says_so(monkeypatch):
    monkeypatch.setattr(prereqs.os, "geteuid", lambda: 1000)
    with pytest.raises(LocalKubeError, match=r"A real node needs root\. Run with sudo, or leave --node out"):
        prereqs.require(node=True)
    with pytest.raises(LocalKubeError, match=r"Installing packages needs root\. Run: sudo apt-get install -y runc"):
        prereqs.install([need for need in prereqs.NEEDS if need.package == "runc"], print)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Pod\n", "holds Pod"),
        ("", "holds nothing"),
        ("- a\n", "holds list"),
        ("a: [", "is not YAML"),
    ],
)
def test_stage_files_that_kwok_would_ignore_are_refused(tmp_path, text, message):
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(LocalKubeError, match=message):
        kwok.check_stages((str(path),))
    with pytest.raises(LocalKubeError, match="does not exist"):
        kwok.check_stages((str(tmp_path / "none.yaml"),))


def test_own_stages_are_stages_and_never_win_over_the_users():
    kwok.check_stages(tuple(map(str, paths.STAGES.glob("*.yaml"))))
    stages = [d for path in paths.STAGES.glob("*.yaml") for d in yaml.safe_load_all(path.read_text())]
    assert {d["spec"]["resourceRef"]["kind"] for d in stages} == {"Node", "Pod"}
    assert not [d for d in stages if d["spec"].get("weight")]


def test_simulated_nodes_are_tainted_only_beside_a_real_one(state):
    assert kwok.node_object("n", 8, tainted=False)["spec"] == {"taints": []}
    tainted = kwok.node_object("n", 0, tainted=True, labels={"zone": "a"})
    assert tainted["spec"]["taints"] == [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]
    assert tainted["metadata"]["labels"]["zone"] == "a"
    assert "nvidia.com/gpu.present" not in tainted["metadata"]["labels"]
    argv = kwok.argv(state, Path("/kwok"))
    assert len([a for a in argv if a.startswith("--config=")]) == 2

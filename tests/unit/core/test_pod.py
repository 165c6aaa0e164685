"""The shape of the pod, as the reported faults want it (B02, B17, B20, B21, B38-B50)."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen_cached_serve.api.quantity import parse as quantity
from qwen_cached_serve.api.quantity import to_bytes
from qwen_cached_serve.api.validate import InvalidResource
from qwen_cached_serve.api.validate import parse as parse_resource
from qwen_cached_serve.core.children import children
from qwen_cached_serve.core.defaults import OperatorDefaults
from qwen_cached_serve.core.resolve import resolve
from qwen_cached_serve.inpod import bundle
from qwen_cached_serve.inpod.facts import ServeSettings, load
from qwen_cached_serve.inpod.flags import engine_argv, probe_argv
from qwen_cached_serve.render import render_children

GIB = 1024**3


def env(container):
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


def settings_of(manifests):
    return load(ServeSettings, json.loads(manifests["ConfigMap"]["data"]["settings.json"]))


@pytest.mark.case("B02")
@pytest.mark.case("B17")
@pytest.mark.case("B21")
def test_the_probe_is_the_engine_with_another_verb(pod):
    spec = {
        "engine": {
            "env": [{"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}],
            "resources": {"limits": {"memory": "50Gi"}},
            "vllm": {"attentionBackend": "FLASH_ATTN"},
        },
        "pod": {"volumes": [{"name": "x", "emptyDir": {}}], "volumeMounts": [{"name": "x", "mountPath": "/x"}]},
    }
    containers = pod(spec)["containers_by_name"]
    probe, engine = containers["probe"], containers["engine"]
    shared = ("image", "imagePullPolicy", "env", "resources", "volumeMounts", "securityContext")
    assert {key: probe[key] for key in shared} == {key: engine[key] for key in shared}
    assert probe["command"][-1] == "probe"
    assert engine["command"][-1] == "engine"


@pytest.mark.case("B17")
def test_probe_and_engine_get_the_same_shaping_flags(resolved):
    made = resolved({"engine": {"vllm": {"blockSize": 128, "kvCacheDtype": "fp8"}}}).settings
    from qwen_cached_serve.inpod.facts import ProbeReport, Versions

    report = ProbeReport(1664, 1664, ("FLASH_ATTN",), Versions("0.32.0", "0.5.6"), "Construct")
    probed = probe_argv(made, "0.32.0", "0.5.6")
    served = engine_argv(made, report)
    for flag in ("--block-size", "--kv-cache-dtype"):
        assert probed[probed.index(flag) + 1] == served[served.index(flag) + 1]


@pytest.mark.case("B20")
def test_strings_of_the_user_arrive_as_they_were_written(manifests):
    name = 'org/it\'s a $HOME "test" $(NAME) `x`'
    made = manifests(
        {
            "model": {
                "name": name,
                "source": {"type": "PersistentVolumeClaim", "persistentVolumeClaim": {"claimName": "w"}},
            }
        }
    )
    settings_json = settings_of(made)
    assert settings_json.model == f"/model/{name}"
    assert settings_json.served_names == (name,)
    template = made["Deployment"]["spec"]["template"]["spec"]
    for container in [*template["initContainers"], *template["containers"]]:
        assert container["command"][:2] == ["python3", "/opt/qcs"]
        assert "args" not in container
        assert name not in json.dumps(container)


@pytest.mark.case("B20")
def test_the_connector_is_one_argument_that_parses(resolved):
    from qwen_cached_serve.core.plan import plan_resource

    plan = plan_resource(resolved())
    argv = [argument for flag in plan.engine for argument in flag.argv()]
    connector = json.loads(argv[argv.index("--kv-transfer-config") + 1])
    assert connector["kv_connector"] == "LMCacheMPConnector"


@pytest.mark.case("B20")
def test_kubernetes_expands_nothing_in_what_the_operator_writes(pod):
    spec = {"model": {"source": {"huggingFace": {"endpoint": "https://mirror.example/$(HOME)"}}}}
    engine = pod(spec)["containers_by_name"]["engine"]
    assert env(engine)["HF_ENDPOINT"] == "https://mirror.example/$$(HOME)"


@pytest.mark.case("B38")
def test_no_service_variables_reach_the_pod(pod):
    assert pod(name="vllm")["enableServiceLinks"] is False


@pytest.mark.case("B38")
def test_a_resource_called_vllm_works(manifests):
    made = manifests(name="vllm")
    assert {manifest["metadata"]["name"] for kind, manifest in made.items() if kind != "ConfigMap"} == {"vllm"}


@pytest.mark.case("B39")
@pytest.mark.parametrize(("spec", "limit"), [({}, 2), ({"engine": {"accelerator": {"gpu": {"count": 8}}}}, 8)])
def test_shared_memory_is_a_limited_memory_volume(pod, spec, limit):
    made = pod(spec)
    shm = next(volume for volume in made["volumes"] if volume["name"] == "qcs-shm")
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": f"{limit}Gi"}
    mounted = [
        name
        for name, container in made["containers_by_name"].items()
        if any(mount["mountPath"] == "/dev/shm" for mount in container["volumeMounts"])
    ]
    # DESIGN D5: shared with the cache server only on CPU (isolated IPC needs no common /dev/shm).
    assert mounted == ["probe", "engine"]


@pytest.mark.case("B39")
def test_without_a_gpu_the_cache_server_shares_the_engines_memory_volume(pod):
    made = pod({"engine": {"accelerator": {"type": "CPU"}, "env": [{"name": "VLLM_CPU_KVCACHE_SPACE", "value": "2"}]}})
    mounts = made["containers_by_name"]["cache-server"]["volumeMounts"]
    assert {"name": "qcs-shm", "mountPath": "/dev/shm"} in mounts
    shm = next(volume for volume in made["volumes"] if volume["name"] == "qcs-shm")
    assert shm["emptyDir"]["sizeLimit"] == "3Gi"
    limit = to_bytes(made["containers_by_name"]["engine"]["resources"]["limits"]["memory"])
    assert limit >= (2 + 2 + 1 + 4) * GIB


@pytest.mark.case("B40")
@pytest.mark.parametrize("size", [1, 60, 64, 100])
def test_the_cache_servers_memory_is_l1_plus_overhead(manifests, size):
    made = manifests({"cache": {"l1": {"size": f"{size}Gi"}}})
    template = made["Deployment"]["spec"]["template"]["spec"]
    server = next(c for c in template["initContainers"] if c["name"] == "cache-server")
    assert server["resources"]["requests"]["memory"] == f"{size + 2}Gi"
    assert server["resources"]["limits"]["memory"] == f"{size + 2}Gi"
    assert settings_of(made).cache.l1_size_bytes == size * GIB


@pytest.mark.case("B40")
def test_decimal_units_are_not_taken_for_binary_ones(manifests, resolved):
    from qwen_cached_serve.core.plan import plan_resource

    made = plan_resource(resolved({"cache": {"l1": {"size": "60G"}}}))
    flag = next(flag for flag in made.cache_server if flag.name == "--l1-size-gb")
    # LMCache multiplies by 2**30: 60 * 10**9 bytes are 55.88 of its GB.
    assert int(float(flag.value) * GIB) == 60 * 10**9
    assert made.budget.cache_server.requests["memory"] == "58Gi"


@pytest.mark.case("B40")
def test_a_limit_below_the_need_is_refused_with_the_figure(resolved):
    with pytest.raises(InvalidResource, match=r"cache\.resources\.limits\.memory.*(66Gi|67584Mi)"):
        resolved({"cache": {"l1": {"size": "64Gi"}, "resources": {"limits": {"memory": "64Gi"}}}})


@pytest.mark.case("B41")
@pytest.mark.parametrize("count", [1, 4])
def test_gpus_are_requested_once(pod, count):
    made = pod({"engine": {"accelerator": {"gpu": {"count": count}}}})
    gpus = {
        name: int(container["resources"]["limits"].get("nvidia.com/gpu", 0))
        for name, container in made["containers_by_name"].items()
    }
    assert gpus == {"probe": count, "cache-server": 0, "engine": count}
    # The scheduler's formula: the larger of each init container and the sum of sidecars and containers.
    assert max(gpus["probe"], gpus["cache-server"] + gpus["engine"]) == count
    assert env(made["containers_by_name"]["cache-server"])["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert made["runtimeClassName"] == "nvidia"
    assert made["shareProcessNamespace"] is True


@pytest.mark.case("B42")
@pytest.mark.parametrize("name", ["nvidia.com/mig-3g.40gb", "amd.com/gpu", "gpu.intel.com/xe", "gpu.intel.com/i915"])
def test_other_devices_by_exactly_their_name(pod, name):
    made = pod({"engine": {"accelerator": {"gpu": {"resourceName": name}}}})
    assert "nvidia.com/gpu" not in json.dumps(made)
    assert made["containers_by_name"]["engine"]["resources"]["limits"][name] == "1"
    assert made["containers_by_name"]["engine"]["resources"]["requests"][name] == "1"
    assert name not in made["containers_by_name"]["cache-server"]["resources"]["limits"]
    assert ("runtimeClassName" in made) is name.startswith("nvidia.com/")


@pytest.mark.case("B42")
def test_tensor_parallelism_over_slices_is_refused(resolved):
    gpu = {"resourceName": "nvidia.com/mig-1g.10gb", "count": 2}
    with pytest.raises(InvalidResource, match="MIG"):
        resolved({"engine": {"accelerator": {"gpu": gpu}, "vllm": {"tensorParallelSize": 2}}})


@pytest.mark.case("B43")
def test_placement_reaches_the_pod(pod):
    given_spec = {
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "nodeSelector": {"gpu": "true"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]
                }
            }
        },
        "priorityClassName": "high",
        "schedulerName": "volcano",
        "imagePullSecrets": [{"name": "pull"}],
    }
    made = pod({"pod": {**given_spec, "serviceAccountName": "qwen"}})
    assert {key: made[key] for key in given_spec} == given_spec
    assert made["serviceAccountName"] == "qwen"
    assert made["automountServiceAccountToken"] is False


@pytest.mark.case("B43")
def test_a_service_account_of_the_users_is_not_made_anew(manifests):
    assert "ServiceAccount" not in manifests({"pod": {"serviceAccountName": "qwen"}})
    assert manifests()["ServiceAccount"]["automountServiceAccountToken"] is False


@pytest.mark.case("B44")
def test_without_a_token_nothing_refers_to_a_secret(pod):
    assert "secretKeyRef" not in json.dumps(pod())


@pytest.mark.case("B44")
def test_the_token_reaches_probe_and_engine_only(pod):
    reference = {"name": "hf", "key": "token"}
    containers = pod({"model": {"source": {"huggingFace": {"tokenSecretKeyRef": reference}}}})["containers_by_name"]
    for name in ("probe", "engine"):
        assert env(containers[name])["HF_TOKEN"] == {"secretKeyRef": reference}
    assert "HF_TOKEN" not in env(containers["cache-server"])


@pytest.mark.case("B45")
@pytest.mark.parametrize(
    "source",
    [
        {"type": "PersistentVolumeClaim", "persistentVolumeClaim": {"claimName": "weights"}},
        {"type": "Image", "image": {"reference": "models/qwen:1"}},
        {"type": "HuggingFace", "huggingFace": {"offline": "Enabled"}},
    ],
)
def test_air_gapped(pod, source):
    spec = {"model": {"name": "Qwen3.6-27B", "source": source}}
    if source["type"] == "HuggingFace":
        spec["model"]["downloadVolume"] = {"type": "PersistentVolumeClaim", "persistentVolumeClaim": {"claimName": "c"}}
    made = pod(spec)
    containers = made["containers_by_name"]
    for name in ("probe", "engine"):
        variables = env(containers[name])
        assert (variables["HF_HUB_OFFLINE"], variables["TRANSFORMERS_OFFLINE"]) == ("1", "1")
        assert variables["HF_HOME"].startswith("/var/cache/qcs")
    for container in containers.values():
        assert env(container)["LMCACHE_TRACK_USAGE"] == "false"
        assert env(container)["DO_NOT_TRACK"] == "1"
        assert env(container)["VLLM_NO_USAGE_STATS"] == "1"
    if source["type"] != "HuggingFace":
        mount = next(m for m in containers["engine"]["volumeMounts"] if m["name"] == "qcs-model")
        assert mount == {"name": "qcs-model", "mountPath": "/model", "readOnly": True}


def test_a_user_who_turns_usage_reports_on_is_obeyed(pod):
    engine = pod({"engine": {"env": [{"name": "VLLM_NO_USAGE_STATS", "value": "0"}]}})["containers_by_name"]["engine"]
    assert env(engine)["VLLM_NO_USAGE_STATS"] == "0"
    assert "DO_NOT_TRACK" not in env(engine)


@pytest.mark.case("B48")
@pytest.mark.parametrize("model", ["Qwen/Qwen3.6-27B", "mnt/models/weights v2", "o/" + "x" * 200])
def test_the_model_id_is_in_no_label(manifests, model):
    source = {"type": "PersistentVolumeClaim", "persistentVolumeClaim": {"claimName": "w"}}
    for manifest in manifests({"model": {"name": model, "source": source}}).values():
        assert model not in json.dumps(manifest["metadata"])
        assert model not in json.dumps(manifest.get("spec", {}).get("template", {}).get("metadata", {}))


@pytest.mark.case("B49")
@pytest.mark.parametrize("accelerator", ["GPU", "CPU"])
def test_every_container_states_requests_and_limits(pod, accelerator):
    for container in pod({"engine": {"accelerator": {"type": accelerator}}})["containers_by_name"].values():
        resources = container["resources"]
        for name in ("cpu", "memory"):
            assert quantity(resources["requests"][name]) <= quantity(resources["limits"][name])


@pytest.mark.case("B50")
def test_the_pod_is_restricted(pod):
    made = pod()
    assert made["securityContext"]["runAsNonRoot"] is True
    assert made["securityContext"]["runAsUser"] == 2000
    assert made["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        assert key not in made
    for container in made["containers_by_name"].values():
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    allowed = {"configMap", "emptyDir", "persistentVolumeClaim", "image", "name"}
    assert all(set(volume) <= allowed for volume in made["volumes"])


def test_root_has_to_be_asked_for(pod):
    context = pod({"pod": {"securityContext": {"runAsUser": 0}}})["securityContext"]
    assert (context["runAsUser"], context["runAsNonRoot"]) == (0, False)


@pytest.mark.case("B51")
def test_nothing_is_copied_from_the_resources_metadata(manifests):
    labels = {"argocd.argoproj.io/instance": "app", "app.kubernetes.io/instance": "app", "team": "x"}
    annotations = {"argocd.argoproj.io/tracking-id": "app:1", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
    made = manifests({"pod": {"labels": {"cost": "y"}}}, labels=labels, annotations=annotations)
    text = json.dumps(list(made.values()))
    for word in ("argocd", '"team"', "last-applied"):
        assert word not in text
    for manifest in made.values():
        (owner,) = manifest["metadata"]["ownerReferences"]
        assert (owner["controller"], owner["name"]) == (True, "q36")
        assert "blockOwnerDeletion" not in owner
        assert manifest["metadata"]["labels"]["app.kubernetes.io/instance"] == "q36"
    assert made["Deployment"]["spec"]["template"]["metadata"]["labels"]["cost"] == "y"


def test_a_users_label_cannot_take_the_pods_out_of_the_selector(manifests):
    deployment = manifests({"pod": {"labels": {"cost": "x"}}})["Deployment"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()


@pytest.mark.case("B29")
def test_the_cache_server_is_up_before_the_engine_starts(pod):
    made = pod()
    assert [container["name"] for container in made["initContainers"]] == ["probe", "cache-server"]
    server = made["containers_by_name"]["cache-server"]
    assert server["restartPolicy"] == "Always"
    assert server["startupProbe"]["httpGet"] == {"path": "/healthcheck", "port": "relay"}
    assert "readinessProbe" not in server


@pytest.mark.case("B30")
@pytest.mark.parametrize(
    ("replicas", "rollout", "strategy"),
    [
        (1, None, {"type": "Recreate"}),
        (2, None, {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}),
        (3, None, {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}),
        (1, {"maxSurge": 1}, {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}),
    ],
)
def test_old_pods_go_first_unless_asked_otherwise(manifests, replicas, rollout, strategy):
    spec = {"replicas": replicas} | ({"rollout": rollout} if rollout else {})
    assert manifests(spec)["Deployment"]["spec"]["strategy"] == strategy


@pytest.mark.parametrize(("asked", "attempts"), [(60, 24), (61, 25), (86400, 17292)])
def test_the_kubelet_only_stands_behind_the_start_limit_of_the_container(manifests, asked, attempts):
    """A run of the gate that hangs takes five minutes and counts as one."""
    made = manifests({"engine": {"startupTimeoutSeconds": asked}})
    assert settings_of(made).startup_timeout_seconds == asked
    gate = made["Deployment"]["spec"]["template"]["spec"]["containers"][0]["startupProbe"]
    assert gate["failureThreshold"] == attempts
    assert gate["periodSeconds"] * attempts >= asked + 60


@pytest.mark.case("B33")
def test_slow_loads_are_waited_for(manifests):
    deployment = manifests()["Deployment"]["spec"]
    engine = deployment["template"]["spec"]["containers"][0]
    startup = engine["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] == 3660
    assert deployment["progressDeadlineSeconds"] > startup["periodSeconds"] * startup["failureThreshold"]
    assert engine["livenessProbe"]["httpGet"]["path"] == "/health"
    assert deployment["minReadySeconds"] < deployment["progressDeadlineSeconds"]


@pytest.mark.parametrize("grace", [1, 5, 30, 90, 600])
def test_draining_fits_into_the_grace_period(resolved, pod, grace):
    spec = {"pod": {"terminationGracePeriodSeconds": grace}}
    timing = resolved(spec).timing
    assert timing.shutdown >= 1
    assert timing.drain_pause + timing.shutdown <= max(grace, 1)
    assert pod(spec)["terminationGracePeriodSeconds"] == grace


def test_stopped_keeps_everything_but_the_pods(manifests):
    running, stopped = manifests({"replicas": 2}), manifests({"replicas": 2, "lifecycle": "Stopped"})
    assert stopped["Deployment"]["spec"]["replicas"] == 0
    assert stopped["Deployment"]["spec"]["template"] == running["Deployment"]["spec"]["template"]
    assert stopped["Service"] == running["Service"]


def test_without_a_cache_there_is_no_cache_server(pod):
    made = pod({"cache": {"mode": "Disabled"}})
    assert set(made["containers_by_name"]) == {"probe", "engine"}
    assert "shareProcessNamespace" not in made


@pytest.mark.case("B35")
def test_scaling_changes_no_template(manifests):
    one, two = manifests({"replicas": 1})["Deployment"], manifests({"replicas": 2})["Deployment"]
    assert one["spec"]["template"] == two["spec"]["template"]


def test_a_change_of_the_settings_is_another_config_map(manifests):
    one, other = manifests(), manifests({"cache": {"chunkBlocks": 2}})
    assert one["ConfigMap"]["metadata"]["name"] != other["ConfigMap"]["metadata"]["name"]
    assert one["ConfigMap"]["immutable"] is True
    assert one["ConfigMap"]["metadata"]["name"] in json.dumps(one["Deployment"]["spec"]["template"])


def test_the_scripts_lie_where_the_package_expects_them(manifests):
    made = manifests()
    volume = next(v for v in made["Deployment"]["spec"]["template"]["spec"]["volumes"] if v["name"] == "qcs-code")
    data = made["ConfigMap"]["data"]
    laid_out = {item["path"]: data[item["key"]] for item in volume["configMap"]["items"]}
    assert {path: text for path, text in laid_out.items() if path != "settings.json"} == bundle.files()
    assert len(json.dumps(made["ConfigMap"])) < 900_000  # the API server takes 1 MiB


def test_the_service_finds_the_engine(manifests):
    made = manifests({"service": {"type": "LoadBalancer", "port": 8000}})
    service, template = made["Service"]["spec"], made["Deployment"]["spec"]["template"]
    assert service["selector"].items() <= template["metadata"]["labels"].items()
    (port,) = service["ports"]
    assert (port["name"], port["port"], port["appProtocol"]) == ("http", 8000, "http")
    assert {"name": "http", "containerPort": 8000, "protocol": "TCP"} in template["spec"]["containers"][0]["ports"]


TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=40)


@settings(max_examples=40, deadline=None)
@given(st.lists(TEXT, max_size=3), TEXT)
def test_any_text_in_variables_and_arguments_survives_rendering(values, label):
    document = {
        "apiVersion": "qwencache.dev/v1alpha1",
        "kind": "QwenCachedServe",
        "metadata": {"name": "q", "namespace": "n", "uid": "u"},
        "spec": {
            "model": {"name": "Qwen/Qwen3.6-27B"},
            "cache": {"l1": {"size": "4Gi"}},
            "engine": {"env": [{"name": f"X_{i}", "value": value} for i, value in enumerate(values)]},
            "pod": {"annotations": {"example.org/x": label}},
        },
    }
    made = render_children(children(resolve(parse_resource(document), OperatorDefaults()), {}))
    template = made[-1]["spec"]["template"]
    variables = env(template["spec"]["containers"][0])
    assert [variables[f"X_{i}"] for i in range(len(values))] == values
    assert template["metadata"]["annotations"]["example.org/x"] == label

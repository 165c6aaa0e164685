"""`qcs top` against a fake API server, whose proxy answers with recorded answers of both programs."""

import contextlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from qwen_cached_serve.cli.top_output import size
from qwen_cached_serve.core import names
from qwen_cached_serve.inpod.facts import RELAY_PORT

UNIT = Path(__file__).parents[1]
METRICS = (UNIT / "core/fixtures/engine-metrics-0.32.0.txt").read_text()
STATUS = (UNIT / "inpod/fixtures/status-registered.json").read_text()
PODS = "/api/v1/namespaces/llm/pods"


def pod(name, phase="Running", address="10.0.0.1"):
    metadata = {"name": name, "namespace": "llm", "annotations": {names.NAME_ANNOTATION: "q36"}}
    return {"metadata": metadata, "status": {"phase": phase, "podIP": address} if address else {"phase": phase}}


class FakeApiServer(ThreadingHTTPServer):
    """Lists pods and answers for them; each reading of the metrics finds 100 tokens more, 80 of them hits."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.pods = [pod("q36-b", "Pending", ""), pod("q36-a"), pod("q36-c")]
        self.forbidden = False
        self.readings = 0
        self.selectors = []


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        path, _, query = self.path.partition("?")
        server = self.server
        if path == PODS:
            server.selectors.append(query)
            self.answer(200, json.dumps({"items": server.pods, "metadata": {}}))
        elif path.endswith("/qwencachedserves/q36"):
            self.answer(200, "{}")
        elif server.forbidden:
            self.answer(403, json.dumps({"kind": "Status", "message": 'cannot get resource "pods/proxy"'}))
        elif path == f"{PODS}/q36-a:8000/proxy/metrics":
            server.readings += 1
            more = server.readings * 100
            extra = (
                f"vllm:external_prefix_cache_queries_total {more}\nvllm:external_prefix_cache_hits_total {more * 0.8}"
            )
            self.answer(200, f"{METRICS}\n{extra}\n")
        elif path == f"{PODS}/q36-a:{RELAY_PORT}/proxy/status":
            self.answer(200, STATUS)
        else:
            self.answer(503, json.dumps({"kind": "Status", "message": "no endpoints"}))

    def answer(self, status, text):
        with contextlib.suppress(ConnectionError):  # a command that has ended waits for no answer
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def api(tmp_path):
    server = FakeApiServer()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_address[1]}"}}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [cluster],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    server.kubeconfig = tmp_path / "kubeconfig"
    server.kubeconfig.write_text(yaml.safe_dump(config))
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def top(run_qcs, api):
    return lambda *arguments: run_qcs(
        "top", *arguments, "-n", "llm", "--kubeconfig", api.kubeconfig, "--interval", "0.5"
    )


def test_rates_are_those_of_the_interval(top, api):
    status, out, err = top("q36")
    assert (status, err) == (0, "")
    header, first, waiting, silent = (re.split(r" {2,}", line) for line in out.splitlines())
    row = dict(zip(header, first, strict=True))
    assert (row["POD"], row["N"], row["RUN"]) == ("q36-a", "2144", "0")
    assert (row["LOCAL"], row["EXTERNAL"]) == ("- (0%)", "80% (95%)")
    assert (row["L1"], row["L2"], row["REGISTERED"]) == ("134MiB/1.0GiB", "-", "1")
    assert "Pending" in waiting
    assert "no answer" in " ".join(silent)
    assert "instance" in api.selectors[0]


def test_json_has_figures(top):
    status, out, _ = top("-o", "json")
    rows = json.loads(out)
    assert (status, [row["pod"] for row in rows]) == (0, ["q36-a", "q36-b", "q36-c"])
    assert rows[0]["engine"]["externalHits"] == pytest.approx(0.8)
    assert rows[0]["cacheServer"] == {
        "l1UsedBytes": 140509184, "l1SizeBytes": 1 << 30, "registered": 1, "l2": []
    }  # fmt: skip
    assert (rows[1]["engine"], rows[1]["cacheServer"], rows[1]["phase"]) == (None, None, "Pending")


def test_a_missing_permission_is_named(top, api):
    api.forbidden = True
    status, out, err = top()
    assert (status, out) == (1, "")
    assert "needs the verb get on pods/proxy in namespace llm" in err


def test_no_pods_are_no_error(top, api):
    api.pods = []
    assert top() == (0, "", "no pods\n")


def test_a_name_is_of_one_namespace(run_qcs):
    assert run_qcs("top", "q36", "-A")[0] == 1


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0B"), (1023, "1023B"), (1536, "1.5KiB"), (150 << 20, "150MiB"), (3 << 40, "3.0TiB"), (5 << 60, "5120.0PiB")],
)
def test_sizes(count, text):
    assert size(count) == text

"""An API server that has bad days: a reverse proxy before the real one that throttles, contradicts or loses answers.

It stands between an operator and the API server, streams watches through and can cut them. What goes wrong is
decided by a function of the request; everything that was asked is kept with its time, so that a test can say when
something was asked again. The operator keeps its token; only its way to the server is plain HTTP.
"""

import base64
import contextlib
import dataclasses
import ssl
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web
from yarl import URL

_KEPT_HEADERS = ("Authorization", "Accept", "Accept-Encoding", "Content-Type", "User-Agent")
_BODY_LIMIT = 16 << 20


@dataclass(frozen=True)
class Throttled:
    """429 as the API server's own priority and fairness gives it, with the header; nothing is forwarded."""

    seconds: int = 2


@dataclass(frozen=True)
class Conflicting:
    """409 as an update of an object that somebody else changed meanwhile gets; nothing is forwarded."""


@dataclass(frozen=True)
class AnswerLost:
    """The request is carried out, and then the connection breaks."""


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    query: dict
    accept: str
    at: float
    count: int = 0
    """How many there were of the same `place`, this one included."""
    fault: object = None

    @property
    def verb(self):
        """As RBAC has it, as far as tests tell them apart."""
        if self.method == "GET":
            return "watch" if "watch" in self.query else "get"
        return {"PATCH": "patch", "POST": "create", "DELETE": "delete"}.get(self.method, self.method)

    @property
    def place(self):
        """What has to be the same for a request to be another one's repetition (kopf and we list in other pages)."""
        return self.verb, self.path, self.query.get("limit", ""), self.comparing

    @property
    def comparing(self):
        """Whether the operator compares its cache with the cluster (kopf never asks for metadata alone)."""
        return "PartialObjectMetadataList" in self.accept


@dataclass
class FaultyApi:
    """See the module's text; `async with` it."""

    kubeconfig: str
    """An administrator's: where the real server is and whom it is signed by."""
    fault: Callable = lambda _asked: None
    """Gives for an `Asked` what goes wrong with it: one of the faults above, or None."""
    requests: list = field(default_factory=list)

    async def __aenter__(self):
        cluster = _cluster(self.kubeconfig)
        self._server = cluster["server"]
        self._counts = Counter()
        self._watches = {}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=_trust(cluster)),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            skip_auto_headers=("Accept-Encoding",),
        )
        app = web.Application(client_max_size=_BODY_LIMIT)
        app.router.add_route("*", "/{path:.*}", self._serve)
        # A client that goes ends its handler, and with it the watch on the real server.
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(self, *_):
        self.cut()
        await self._runner.cleanup()
        await self._session.close()

    def kubeconfig_through(self, kubeconfig, path):
        """Write a kubeconfig that says the same as `kubeconfig`, but leads through here."""
        config = yaml.safe_load(kubeconfig.read_text())
        port = self._runner.addresses[0][1]
        for entry in config["clusters"]:
            entry["cluster"] = {"server": f"http://127.0.0.1:{port}"}
        path.write_text(yaml.safe_dump(config))
        return path

    def watched(self):
        """The plural names of the kinds that have an open watch."""
        return {asked.path.rpartition("/")[2] for asked in self._watches.values()}

    def cut(self, wanted=lambda _asked: True):
        """Break open watches; return how many."""
        broken = [transport for transport, asked in self._watches.items() if wanted(asked)]
        for transport in broken:
            transport.abort()
        return len(broken)

    def faults(self, kind, verb):
        """The requests of a verb that met that kind of fault."""
        return [asked for asked in self.requests if isinstance(asked.fault, kind) and asked.verb == verb]

    def early(self):
        """Requests that were repeated before the time that a `Throttled` had named, with the seconds they waited."""
        found, refused = [], {}
        for asked in self.requests:
            first = refused.pop(asked.place, None)
            # A tenth of a second is the clocks' and the event loops' own.
            if first and asked.at - first.at < first.fault.seconds - 0.1:
                found.append((asked.place, round(asked.at - first.at, 2)))
            if isinstance(asked.fault, Throttled):
                refused[asked.place] = asked
        return found

    async def _serve(self, request):
        asked = self._note(request)
        if isinstance(asked.fault, Throttled):
            return _status(429, "TooManyRequests", "slow down", asked.fault.seconds)
        if isinstance(asked.fault, Conflicting):
            return _status(409, "Conflict", "the object has been modified; please apply your changes to the latest")
        headers = {name: request.headers[name] for name in _KEPT_HEADERS if name in request.headers}
        body = await request.read() or None  # an empty one would get a content type
        url = URL(self._server + request.raw_path, encoded=True)
        async with self._session.request(request.method, url, headers=headers, data=body) as upstream:
            if isinstance(asked.fault, AnswerLost):
                await upstream.read()
                request.transport.abort()
                return web.Response()
            if asked.verb == "watch":
                return await self._stream(request, asked, upstream)
            return web.Response(status=upstream.status, headers=_passed(upstream), body=await upstream.read())

    async def _stream(self, request, asked, upstream):
        response = web.StreamResponse(status=upstream.status, headers=_passed(upstream))
        transport = request.transport
        self._watches[transport] = asked
        with contextlib.suppress(ConnectionError, aiohttp.ClientError):
            await response.prepare(request)
            async for chunk in upstream.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
        self._watches.pop(transport, None)
        return response

    def _note(self, request):
        asked = Asked(
            method=request.method,
            path=request.path,
            query=dict(request.query),
            accept=request.headers.get("Accept", ""),
            at=time.monotonic(),
        )
        self._counts[asked.place] += 1
        asked = dataclasses.replace(asked, count=self._counts[asked.place])
        asked = dataclasses.replace(asked, fault=self.fault(asked))
        self.requests.append(asked)
        return asked


def _cluster(kubeconfig):
    [entry] = yaml.safe_load(Path(kubeconfig).read_text())["clusters"]
    return entry["cluster"]


def _trust(cluster):
    ca = base64.b64decode(cluster.get("certificate-authority-data", "")).decode() or None
    return ssl.create_default_context(cafile=cluster.get("certificate-authority"), cadata=ca)


def _passed(upstream):
    # Bodies go through as they came; the API server packs those above 128 KiB.
    kept = ("Content-Type", "Content-Encoding", "Retry-After")
    return {name: upstream.headers[name] for name in kept if name in upstream.headers}


def _status(code, reason, message, retry_after=0):
    body = {
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "code": code, "reason": reason, "message": message,
    }  # fmt: skip
    headers = {}
    if retry_after:
        body["details"] = {"retryAfterSeconds": retry_after}
        headers["Retry-After"] = str(retry_after)
    return web.json_response(body, status=code, headers=headers)

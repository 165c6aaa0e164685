"""Leader election over a Lease: one operator writes, the others watch and wait.

Rules, and why the library's own elector was not used (facts/kopf-and-libraries.md §2): times are UTC microseconds;
expiry of somebody else's lease is judged by our monotonic clock from when we *saw* it renewed, never by comparing
clocks of machines; every write of the Lease is optimistic (resourceVersion); a clean end releases it, so that the
next one need not wait; and `seconds_left` gives every other write of this process its deadline (D15). A leader that
cannot renew within `LeaseTimes.renew_deadline` is over: `lead` returns and the process must end.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from qwen_cached_serve.kube.port import LEASES, ApiError, Conflict, Manifest, NotFound, Port

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Seconds; `lease > renew_deadline > retry` (the defaults are those of Kubernetes' own components)."""

    lease: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0

    def __post_init__(self) -> None:
        if not self.lease > self.renew_deadline > self.retry > 0:
            raise ValueError(
                f"leader election times must satisfy lease > renew deadline > retry > 0, got {self.lease} > "
                f"{self.renew_deadline} > {self.retry}"
            )


def _utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def micro_time(moment: dt.datetime) -> str:
    """Return the API's MicroTime of a moment: UTC, six digits, `Z`."""
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class LeaseElector:
    """One candidate for one Lease."""

    def __init__(
        self,
        port: Port,
        *,
        namespace: str,
        name: str,
        identity: str,
        times: LeaseTimes | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        utc_now: Callable[[], dt.datetime] = _utc_now,
    ) -> None:
        self._port = port
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._times = times or LeaseTimes()
        self._monotonic = monotonic
        self._utc_now = utc_now
        self._lease: Manifest | None = None
        self._seen: tuple[object, float] = (None, 0.0)  # (holder and renewal as last seen, when we saw that first)
        self._held_until = 0.0  # monotonic time up to which our last renewal is good for writing

    def seconds_left(self) -> float:
        """Return for how long writes are still safe; 0 or less when this process does not lead."""
        return self._held_until - self._monotonic()

    @property
    def leading(self) -> bool:
        """Whether this process may write now."""
        return self.seconds_left() > 0

    async def acquire(self) -> None:
        """Wait until this process leads."""
        reported: object = None
        while not await self._try():
            holder = self._holder()
            if holder != reported:
                reported = holder
                log.info("waiting for leadership", lease=f"{self._namespace}/{self._name}", holder=holder)
            # Jitter, so that candidates which started together do not ask together for ever.
            await asyncio.sleep(self._times.retry * (1 + 0.2 * random.random()))  # noqa: S311
        log.info("leading", lease=f"{self._namespace}/{self._name}", identity=self._identity)

    async def lead(self) -> None:
        """Renew until that fails for too long; returns when the leadership is lost."""
        while True:
            await asyncio.sleep(min(self._times.retry, max(self.seconds_left(), 0)))
            if not self.leading:
                log.error("leadership lost: no renewal in time", lease=f"{self._namespace}/{self._name}")
                return
            if await self._try():
                continue
            if self._holder() not in (self._identity, ""):
                self._held_until = 0.0
                log.error("leadership lost: somebody else holds the lease", holder=self._holder())
                return

    async def release(self) -> None:
        """Give the leadership back at once; failing that, it runs out by itself."""
        if not self.leading or self._lease is None:
            return
        self._held_until = 0.0
        now = micro_time(self._utc_now())
        spec = dict(self._lease["spec"], holderIdentity="", leaseDurationSeconds=1, renewTime=now, acquireTime=now)
        try:
            await self._port.replace(LEASES, {**self._lease, "spec": spec})
            log.info("leadership released", lease=f"{self._namespace}/{self._name}")
        except ApiError as error:
            log.warning("the lease could not be released and will run out", error=error.message)

    async def _try(self) -> bool:
        """Take or renew the lease; whether this process leads after it. API errors count as a no."""
        started = self._monotonic()
        try:
            async with asyncio.timeout(self._times.renew_deadline / 2):
                written = await self._take()
        except TimeoutError:
            log.warning("the lease request took too long", lease=f"{self._namespace}/{self._name}")
            return False
        except Conflict:
            return False  # somebody was faster; the next look tells who
        except ApiError as error:
            log.warning("the lease cannot be read or written", error=error.message, status=error.status)
            return False
        if written:
            # Counted from before the request: the server's clock for the others starts no earlier than this.
            self._held_until = started + self._times.renew_deadline
        return written

    async def _take(self) -> bool:
        try:
            self._lease = await self._port.get(LEASES, self._namespace, self._name)
        except NotFound:
            self._lease = await self._port.create(LEASES, self._manifest(transitions=0, acquired=None))
            return True
        spec = self._lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        seen = (holder, spec.get("renewTime"))
        if seen != self._seen[0]:
            self._seen = (seen, self._monotonic())
        mine = holder == self._identity
        if not mine and holder and not self._expired(spec):
            return False
        transitions = int(spec.get("leaseTransitions") or 0) + (0 if mine else 1)
        manifest = self._manifest(transitions=transitions, acquired=spec.get("acquireTime") if mine else None)
        manifest["metadata"] = self._lease["metadata"]
        self._lease = await self._port.replace(LEASES, manifest)
        return True

    def _expired(self, spec: Manifest) -> bool:
        duration = float(spec.get("leaseDurationSeconds") or self._times.lease)
        return self._monotonic() - self._seen[1] > duration

    def _holder(self) -> str:
        return str(((self._lease or {}).get("spec") or {}).get("holderIdentity") or "")

    def _manifest(self, *, transitions: int, acquired: str | None) -> Manifest:
        now = micro_time(self._utc_now())
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"namespace": self._namespace, "name": self._name},
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": max(1, round(self._times.lease)),
                "acquireTime": acquired or now,
                "renewTime": now,
                "leaseTransitions": transitions,
            },
        }

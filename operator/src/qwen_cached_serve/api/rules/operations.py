"""Rules about rolls and about the objects around the pods."""

from __future__ import annotations

import ipaddress
import re

from qwen_cached_serve.api.rules.rule import Node, Rule, quote
from qwen_cached_serve.api.v1alpha1 import defaults

_NONE = ("0", "0%", "00%")


def _moves(rollout: Node) -> bool:
    surge = str(rollout.get("maxSurge", defaults.MAX_SURGE))
    unavailable = str(rollout.get("maxUnavailable", defaults.MAX_UNAVAILABLE))
    return surge not in _NONE or unavailable not in _NONE


def _is_pods(node: Node) -> bool:
    if isinstance(node, int):
        return node >= 0
    return re.fullmatch(r"(100|[0-9]{1,2})%", node) is not None


def _peer_whole(peer: Node) -> bool:
    return ("ipBlock" in peer) != bool({"podSelector", "namespaceSelector"} & set(peer))


def _is_cidr(node: Node) -> bool:
    try:
        network = ipaddress.ip_network(node, strict=False)
    except ValueError:
        return False
    # CEL's isCIDR takes no IPv4 address in the clothes of an IPv6 one.
    return network.version == 4 or network.network_address.ipv4_mapped is None


def _clients(*peers: Node) -> dict[str, Node]:
    return {"networkPolicy": {"mode": "Enabled", "allowedClients": list(peers)}}


RULES = (
    Rule(
        name="networkPolicy.allowedClients-peer",
        scopes=("spec.networkPolicy.allowedClients[]",),
        cel="has(self.ipBlock) != (has(self.podSelector) || has(self.namespaceSelector))",
        holds=_peer_whole,
        problem="a peer is either an ipBlock or a podSelector and/or a namespaceSelector",
        remedy="set one of them; namespaceSelector: {} admits every pod of the cluster",
        accepts=(
            _clients({"ipBlock": {"cidr": "10.0.0.0/8"}}, {"namespaceSelector": {}}),
            _clients({"podSelector": {"matchLabels": {"app": "a"}}, "namespaceSelector": {}}),
        ),
        rejects=(_clients({}), _clients({"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}})),
    ),
    Rule(
        name="networkPolicy.allowedClients-cidr",
        scopes=("spec.networkPolicy.allowedClients[].ipBlock.cidr",),
        cel="isCIDR(self)",
        holds=_is_cidr,
        problem="not a range of addresses",
        remedy="write an address, a slash and the number of bits that count, such as 10.0.0.0/8 or fd00::/8",
        accepts=(_clients({"ipBlock": {"cidr": "fd00::/8"}}), _clients({"ipBlock": {"cidr": "10.1.2.3/8"}})),
        rejects=(
            _clients({"ipBlock": {"cidr": "10.0.0/8"}}),
            _clients({"ipBlock": {"cidr": "10.0.0.0/33"}}),
            _clients({"ipBlock": {"cidr": "010.0.0.0/8"}}),
            _clients({"ipBlock": {"cidr": "::ffff:10.0.0.0/104"}}),
        ),
    ),
    Rule(
        name="rollout-pods",
        scopes=("spec.rollout.maxSurge", "spec.rollout.maxUnavailable", "spec.disruptionBudget.maxUnavailable"),
        cel=f"type(self) == int ? self >= 0 : self.matches({quote('^(100|[0-9]{1,2})%$')})",
        holds=_is_pods,
        problem="not a number of pods",
        remedy="write a number such as 1, or a quoted percentage such as '25%'",
        accepts=(
            {"rollout": {"maxSurge": 1, "maxUnavailable": "25%"}},
            {"rollout": {"maxSurge": "100%"}},
            {"disruptionBudget": {"maxUnavailable": "50%"}},
            {"disruptionBudget": {"maxUnavailable": 0}},
        ),
        rejects=(
            {"rollout": {"maxSurge": -1}},
            {"rollout": {"maxUnavailable": "1"}},
            {"rollout": {"maxUnavailable": "101%"}},
            {"rollout": {"maxSurge": "-1%"}},
            {"disruptionBudget": {"maxUnavailable": -1}},
            {"disruptionBudget": {"maxUnavailable": "half"}},
        ),
    ),
    Rule(
        name="rollout-moves",
        scopes=("spec.rollout",),
        cel=(
            f"!((has(self.maxSurge) ? string(self.maxSurge) : '{defaults.MAX_SURGE}') in {list(_NONE)} && "
            f"(has(self.maxUnavailable) ? string(self.maxUnavailable) : '{defaults.MAX_UNAVAILABLE}') in {list(_NONE)})"
        ),
        holds=_moves,
        field=".maxUnavailable",
        problem="rollout.maxSurge and rollout.maxUnavailable are both 0, so no roll could ever begin",
        remedy="set rollout.maxUnavailable: 1, or rollout.maxSurge: 1 where free GPUs exist",
        accepts=({"rollout": {"maxUnavailable": 0, "maxSurge": 1}}, {"rollout": {}}),
        rejects=({"rollout": {"maxUnavailable": 0}}, {"rollout": {"maxUnavailable": "0%", "maxSurge": "0%"}}),
    ),
)

"""Namespaces of a store against those that resources use."""

from qwen_cached_serve.core.stores import Found, User, listing, names_in, users

A, B, C = (f"v1-{letter * 40}" for letter in "abc")


def resource(name, *identities, l2=()):
    entries = [{"identity": identity, "pods": 2, "summary": "FLASH_ATTN/16 N784"} for identity in identities]
    return {
        "metadata": {"namespace": "llm", "name": name},
        "spec": {"cache": {"l2": list(l2)}},
        "status": {"identities": entries},
    }


def test_names_are_found_in_whatever_a_store_lists():
    keys = f"qcs-{A}@model@1\n2026-11-30 qcs-{B}\nqcs-{A}@model@2\nqcs-v1-short\nother"
    assert names_in(keys) == [f"qcs-{A}", f"qcs-{B}"]


def test_users_are_what_statuses_and_dedications_say():
    bucket = {"name": "s", "type": "S3", "s3": {"dedicatedTo": A}}
    server = {"name": "r", "type": "Resp", "resp": {"dedicatedTo": C}}
    found = users([resource("one", A, B, l2=[bucket, server]), resource("two", A), {"metadata": {}}])
    both = User("llm/one", 2, "FLASH_ATTN/16 N784"), User("llm/two", 2, "FLASH_ATTN/16 N784")
    assert found == {f"qcs-{A}": list(both), f"qcs-{B}": [both[0]], f"qcs-{C}": [User("llm/one", 0)]}


def test_used_ones_come_first_and_missing_ones_are_kept():
    rows = listing([Found(f"qcs-{A}"), Found(f"qcs-{B}")], users([resource("one", B, C)]))
    assert [(row.name, row.used, row.found is not None) for row in rows] == [
        (f"qcs-{B}", True, True),
        (f"qcs-{C}", True, False),
        (f"qcs-{A}", False, True),
    ]

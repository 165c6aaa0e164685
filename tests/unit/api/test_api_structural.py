"""The structural checker finds each fault that an API server refuses."""

import copy

import pytest

from qwen_cached_serve.api.structural import check

GOOD = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "t", "maxLength": 5},
        "size": {"x-kubernetes-int-or-string": True, "description": "s", "maxLength": 5},
        "number": {"type": "integer", "description": "n", "default": 1},
        "list": {
            "type": "array",
            "description": "l",
            "maxItems": 3,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string", "description": "n", "maxLength": 5}},
            },
        },
        "map": {
            "type": "object",
            "description": "m",
            "maxProperties": 3,
            "additionalProperties": {"type": "string", "maxLength": 5},
        },
    },
    "x-kubernetes-validations": [{"rule": "true", "message": "never"}],
}


def changed(path, **change):
    schema = copy.deepcopy(GOOD)
    node = schema
    for step in path.split("."):
        node = node[step] if step else node
    node.update(change)
    for key in [key for key, value in node.items() if value is None]:
        del node[key]
    return schema


def test_a_good_schema_passes():
    assert check(GOOD) == []


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (changed("properties.text", type=None), "type is None"),
        (changed("properties.text", type=["string", "null"]), "type is ['string', 'null']"),
        (changed("properties.text", title="T"), "title is not allowed"),
        (changed("properties.text", const="x"), "const is not allowed"),
        (changed("properties.text", anyOf=[{"type": "null"}]), "anyOf is not allowed"),
        (changed("properties.text", **{"$ref": "#/x"}), "$ref is not allowed"),
        (changed("properties.text", nullable=True), "nullable is not used"),
        (changed("properties.text", description=None), "description is missing"),
        (changed("properties.text", maxLength=None), "needs maxLength"),
        (changed("properties.size", maxLength=None), "needs maxLength"),
        (changed("properties.size", type="string"), "excludes type"),
        (changed("properties.number", default="1"), "is no integer"),
        (changed("properties.number", default=True), "is no integer"),
        (changed("properties.number", exclusiveMinimum=0), "has to be a boolean"),
        (changed("properties.text", enum=["a"], default="b"), "is not one of the values"),
        (changed("properties.list", items=None), "items has to be a schema"),
        (changed("properties.list", maxItems=None), "needs maxItems"),
        (changed("properties.list", **{"x-kubernetes-list-type": None}), "x-kubernetes-list-type is None"),
        (changed("properties.list", **{"x-kubernetes-list-type": "atomic"}), "go with list type map"),
        (changed("properties.list.items", required=[]), "the key name has to be required"),
        (changed("properties.map", maxProperties=None), "needs maxProperties"),
        (changed("properties.map", properties={}), "exclude additionalProperties"),
        (changed("properties.map", additionalProperties=False), "has to be a schema"),
        (changed("properties.map", default={"a": "b"}), "has to be {}"),
        (changed("", required=["nothing"]), "required names the unknown nothing"),
        (changed("", **{"x-kubernetes-validations": [{"rule": "true"}]}), "needs an expression and a message"),
        (changed("", **{"x-kubernetes-validations": [{"rule": "true", "message": "m", "x": 1}]}), "unknown field x"),
        (changed("", **{"x-kubernetes-validations": [{"rule": "true", "message": "a\nb"}]}), "is one line"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_fault_is_found(schema, words):
    assert any(words in sentence for sentence in check(schema))

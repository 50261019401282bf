"""Random JSON schemas with bounded strings, lists and depth, the same for the same seed."""

import random

WORDS = [
    "name",
    "age",
    "city",
    "tags",
    "score",
    "kind",
    "notes",
    "items",
    "owner",
    "price",
    "count",
]
PATTERNS = [
    "^[a-z]{2,8}$",
    "^[A-Z][a-z]{1,6}( [A-Z][a-z]{1,6})?$",
    "^\\d{3}-\\d{4}$",
    "^(low|high)$",
]
FORMATS = ["date", "time", "date-time", "email", "ipv4", "uuid"]
MAX_DEPTH = 3


def random_schema(seed: int) -> dict:
    """An object, as OpenAI's API wants it; every third has definitions."""
    r = random.Random(seed)
    schema = _object(r, depth=0)
    if seed % 3 == 0:
        schema["properties"]["shared"] = {"$ref": "#/$defs/shared"}
        schema.setdefault("required", []).append("shared")
        schema["$defs"] = {"shared": _any(r, depth=MAX_DEPTH - 1)}
    return schema


def _any(r: random.Random, depth: int) -> dict:
    kinds = [_string, _string, _integer, _number, _boolean, _null, _enum, _const]
    if depth < MAX_DEPTH:
        kinds += [_object, _object, _array, _array, _any_of, _one_of, _types]
    return r.choice(kinds)(r, depth)


def _object(r: random.Random, depth: int) -> dict:
    names = r.sample(WORDS, r.randint(1, 4 - depth))
    schema: dict = {"type": "object", "properties": {n: _any(r, depth + 1) for n in names}}
    if required := [n for n in names if r.random() < 0.7]:
        schema["required"] = required
    if r.random() < 0.5:
        schema["additionalProperties"] = False
    return schema


def _array(r: random.Random, depth: int) -> dict:
    schema = {"type": "array", "items": _any(r, depth + 1), "maxItems": r.randint(1, 4)}
    if r.random() < 0.5:
        schema["minItems"] = r.randint(0, schema["maxItems"])
    if r.random() < 0.2:
        schema["prefixItems"] = [_any(r, depth + 1)]
    return schema


def _any_of(r: random.Random, depth: int) -> dict:
    return {"anyOf": [_any(r, depth + 1) for _ in range(r.randint(2, 3))]}


def _one_of(r: random.Random, depth: int) -> dict:
    return {"oneOf": [_string(r, depth), _integer(r, depth), {"type": "null"}]}


def _types(r: random.Random, _depth: int) -> dict:
    return {"type": r.sample(["string", "null", "boolean"], 2), "maxLength": r.randint(1, 12)}


def _string(r: random.Random, _depth: int) -> dict:
    schema: dict = {"type": "string"}
    kind = r.randint(0, 3)
    if kind == 0:
        schema["pattern"] = r.choice(PATTERNS)
    elif kind == 1:
        schema["format"] = r.choice(FORMATS)
    else:
        schema["maxLength"] = r.randint(1, 24)
        if kind == 2:
            schema["minLength"] = r.randint(0, schema["maxLength"])
    return schema


def _integer(r: random.Random, _depth: int) -> dict:
    low = r.randint(-1000, 1000)
    schema = {"type": "integer", "minimum": low, "maximum": low + r.randint(0, 5000)}
    if r.random() < 0.2:
        schema["multipleOf"] = r.randint(1, schema["maximum"] - low + 1)
        schema["multipleOf"] = min(schema["multipleOf"], 20)
        schema["maximum"] = max(schema["maximum"], low + schema["multipleOf"])
    elif r.random() < 0.3:
        schema["exclusiveMaximum"] = schema.pop("maximum") + 1
    return schema


def _number(r: random.Random, _depth: int) -> dict:
    low = round(r.uniform(-100, 100), r.randint(0, 3))
    return {"type": "number", "minimum": low, "maximum": low + r.randint(0, 1000)}


def _boolean(_r: random.Random, _depth: int) -> dict:
    return {"type": "boolean"}


def _null(_r: random.Random, _depth: int) -> dict:
    return {"type": "null"}


def _value(r: random.Random):
    return r.choice(["red", 'a "quoted" word', "naïve\n", 7, -2.5, True, None, [1, "x"], {"k": 1}])


def _enum(r: random.Random, _depth: int) -> dict:
    return {"enum": [_value(r) for _ in range(r.randint(1, 4))]}


def _const(r: random.Random, _depth: int) -> dict:
    return {"const": _value(r)}

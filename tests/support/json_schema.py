"""Validates lines of JSON against a JSON schema.

    json_schema.py SCHEMA.json < OUTPUT

reports each line that is not valid and returns 1 if there is one. It knows the
keywords that docs/json.schema.json has; another keyword is an error, so that
nothing is left unchecked. No package of the standard library validates."""
import json
import sys

KNOWN = {"$schema", "$defs", "$ref", "title", "type", "const", "enum", "required", "properties",
         "additionalProperties", "items", "minItems", "maxItems", "minimum", "oneOf"}
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def is_type(value, name):
    if name == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if name == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


class Validator:
    def __init__(self, root):
        self.root = root

    def resolve(self, ref):
        schema = self.root
        for part in ref.removeprefix("#/").split("/"):
            schema = schema[part]
        return schema

    def errors(self, value, schema, at=""):
        """A list of what is wrong with value, each with its place."""
        unknown = schema.keys() - KNOWN
        if unknown:
            raise ValueError(f"unknown keywords: {unknown}")
        if "$ref" in schema:
            return self.errors(value, self.resolve(schema["$ref"]), at)
        if "oneOf" in schema:
            return self.one_of(value, schema["oneOf"], at)
        types = schema.get("type", [])
        types = [types] if isinstance(types, str) else types
        if types and not any(is_type(value, t) for t in types):
            return [f"{at}: {value!r} is not {' or '.join(types)}"]
        if "const" in schema and value != schema["const"]:
            return [f"{at}: {value!r} is not {schema['const']!r}"]
        if "enum" in schema and value not in schema["enum"]:
            return [f"{at}: {value!r} is not one of {schema['enum']}"]
        if "minimum" in schema and value is not None and value < schema["minimum"]:
            return [f"{at}: {value} is too small"]
        if isinstance(value, list):
            return self.of_list(value, schema, at)
        return self.of_object(value, schema, at) if isinstance(value, dict) else []

    def one_of(self, value, schemas, at):
        all_errors = [self.errors(value, s, at) for s in schemas]
        if sum(not e for e in all_errors) == 1:
            return []
        # the one that was meant has the right name
        meant = [e for e in all_errors if not any(m.startswith(f"{at}/schema:") for m in e)]
        return meant[0] if meant else [f"{at}: {value['schema']!r} is no schema"]

    def of_list(self, value, schema, at):
        found = []
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            found.append(f"{at}: {len(value)} items")
        for i, item in enumerate(value):
            found += self.errors(item, schema.get("items", {}), f"{at}/{i}")
        return found

    def of_object(self, value, schema, at):
        known, more = schema.get("properties", {}), schema.get("additionalProperties", {})
        found = [f"{at}: no member {name}" for name in schema.get("required", []) if name not in value]
        for name, member in value.items():
            if name in known:
                found += self.errors(member, known[name], f"{at}/{name}")
            elif more is False:
                found.append(f"{at}: unknown member {name}")
            else:
                found += self.errors(member, more, f"{at}/{name}")
        return found


def main():
    with open(sys.argv[1]) as f:
        schema = json.load(f)
    bad = 0
    for line in sys.stdin:
        for error in Validator(schema).errors(json.loads(line), schema):
            print(f"{error}\n  in {line[:200].rstrip()}")
            bad = 1
    return bad


if __name__ == "__main__":
    sys.exit(main())

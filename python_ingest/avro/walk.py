"""What Avro schemas are made of, and a walk over one."""

from collections.abc import Iterator

from python_ingest.avro.types import AvroField, AvroSchema

WIDER_NUMBERS = {("int", "long"): "long", ("float", "double"): "double"}


class IncompatibleSchema(Exception):
    """A schema that this table cannot take, with the field at fault. Neither part ever holds a value."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field = field
        self.reason = reason


def avro_type(schema: AvroSchema) -> str:
    """Return the Avro type's name, `union` for a list."""
    if isinstance(schema, list):
        return "union"
    return schema if isinstance(schema, str) else avro_type(schema["type"])


def not_null(schema: AvroSchema) -> AvroSchema:
    """Return a union without its null: T if one T is left, the wider type of two numbers, else the union of the rest.

    Spark reads a union of int and long as long, and one of float and double as double.
    """
    if not isinstance(schema, list):
        return schema
    branches = [branch for branch in schema if branch != "null"] or ["null"]
    for pair, wider in WIDER_NUMBERS.items():
        if {*map(avro_type, branches)} == {*pair}:
            return wider
    return branches if len(branches) > 1 else branches[0]


def optional(schema: AvroSchema) -> AvroSchema:
    """Return the union of null and a schema, which may be a union itself."""
    some = not_null(schema)
    return ["null", *(some if isinstance(some, list) else [some])]


def member(branch: AvroSchema) -> str:
    """Return the name of the field that holds the values of one branch of a union, as Spark calls it."""
    name = branch.get("name", avro_type(branch)) if isinstance(branch, dict) else avro_type(branch)
    return f"member_{name.rpartition('.')[2]}"


def is_name(text: str) -> bool:
    """Return whether Avro's Java library takes this as a name: it begins with a letter, of any alphabet, or `_`."""
    text = text.replace("_", "a")
    # Java looks at 16 bits at a time, and finds no letter in the halves of one beyond.
    return text[:1].isalpha() and all(char <= "\uffff" and (char.isalpha() or char.isdecimal()) for char in text)


def below(path: str, name: str) -> str:
    """Return the path of a field below a path."""
    return f"{path}.{name}" if path else name


def fields(schema: AvroSchema | None) -> dict[str, AvroField]:
    """Return the fields of a record that may be null, by name, without omitted ones; {} for all else."""
    some = not_null(schema or "null")
    columns = some.get("fields", ()) if isinstance(some, dict) else ()
    return {field["name"]: field for field in columns if "omitted" not in field}


def omitted(field: AvroField, name: str, reason: str) -> AvroField:
    """Return a field of an expanded schema as omitted, under a name that no column has."""
    return AvroField(name=f"_omitted_{name}", type=field["type"], omitted=f"{name}: {reason}")


def children(schema: AvroSchema | None) -> dict[str, AvroSchema]:
    """Return what a schema is made of, by the name of the step down to it; {} if it has no parts.

    These are the fields of a record, the `element` of an array, the `value` of a map, the members of a union but null.
    Omitted fields are no part.
    """
    some = not_null(schema or "null")
    if isinstance(some, list):
        return {member(branch): branch for branch in some}
    if isinstance(some, str):
        return {}
    if some["type"] == "array":
        return {"element": some["items"]}
    if some["type"] == "map":
        return {"value": some["values"]}
    return {name: field["type"] for name, field in fields(some).items()}


def walk(schema: AvroSchema, path: str = "", into_unions: bool = True) -> Iterator[tuple[str, AvroSchema]]:
    """Yield path and type without null of a schema and of what is below it, the outer first, but for what is null."""
    some = not_null(schema)
    yield path, some
    if into_unions or not isinstance(some, list):
        for name, part in children(some).items():
            if not holds_nothing(part):
                yield from walk(part, below(path, name), into_unions)


def takes_no_bytes(schema: AvroSchema) -> bool:
    """Return whether every value of a type has an encoding of no bytes."""
    if not isinstance(schema, dict):
        return schema == "null"
    if schema["type"] == "record":
        return all(takes_no_bytes(field["type"]) for field in schema["fields"])
    return schema.get("size") == 0


def holds_nothing(schema: AvroSchema) -> bool:
    """Return whether there is nothing to land: null, or a record, array or map without a part that holds something."""
    some = not_null(schema)
    made_of_parts = avro_type(some) in ("record", "array", "map")
    return some == "null" or (made_of_parts and all(map(holds_nothing, children(some).values())))

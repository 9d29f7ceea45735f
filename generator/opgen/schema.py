"""JSON Schemas of the files of a spec, and the page that explains their keys, of the records that read them.

A schema says what one file may hold by itself, as far as JSON Schema can say it: types, keys, choices, forms of text.
It refuses nothing that the records accept.
"""

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias, get_args, get_origin

from opgen.banner import SCHEMA
from opgen.build import FILE_KINDS, FileKind, file_kind
from opgen.decoder import Member, Notes, entry, first, members, options, others, split
from opgen.docstrings import docstring_of
from opgen.notes import Mark, Using, exactly
from opgen.problem import Location
from opgen.write import Change, changes

Schema: TypeAlias = dict[str, Any]

SPEC = PurePosixPath("spec")
_FOLDER, _README = PurePosixPath("schema"), PurePosixPath("README.md")
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TEXT = r"\S"
_SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean"}
# Numbers are finite, which a schema says by bounds.
_FINITE = {"minimum": -sys.float_info.max, "maximum": sys.float_info.max}
_WORDS = {"string": "text", "integer": "integer", "number": "number", "boolean": "true or false", "null": "null"}
_INTRODUCTION = """\
# The spec

`opgen schema` writes this page, and the JSON Schemas in `schema/`, from the classes that read the files. An editor with
a YAML language server shows the same texts, from the schema that the first line of each file names.

Each file holds a mapping. `*` stands for any name. The key of an entry is its name: small letters, digits and
underscores, except where the page says otherwise.
"""


def modeline(kind: FileKind[Any]) -> str:
    """The comment by which editors find the schema of a file."""
    up = "../" * (len(kind.path.parts) - 2)
    return f"# yaml-language-server: $schema={up}schema/{kind.name}.json"


def with_modeline(root: Path, path: Path, text: str) -> str:
    """A new file of the spec that names its schema, if the project below `root` keeps schemas."""
    kind = file_kind(path)
    return text if kind is None or not has_schemas(root) else f"{modeline(kind)}\n{text}"


def has_schemas(root: Path) -> bool:
    """Return True if a project keeps schemas."""
    return (root / SPEC / _FOLDER).is_dir()


def schema_of(kind: FileKind[Any]) -> Schema:
    """The schema of the files of a kind."""
    records = _Records(kind.variant)
    root = records.record(kind.record)
    return {"$schema": _DIALECT, "title": str(kind.path), **root, "$defs": records.definitions}


def stale_files(root: Path) -> list[Change]:
    """Return the changes to the folder SPEC of a project that make its schemas those of this opgen."""
    return changes(_files(), root / SPEC, banner=SCHEMA)


def _files() -> dict[PurePosixPath, str]:
    """All that a project keeps for editors, and for those who read its spec: the schemas, and the page."""
    schemas = {kind.name: schema_of(kind) for kind in FILE_KINDS}
    files = {_FOLDER / f"{name}.json": _signed(_public(schema)) for name, schema in schemas.items()}
    page = _page(schemas)
    return {**files, _README: SCHEMA.line(page, "<!-- ", " -->") + page}


def _signed(schema: Schema) -> str:
    """A schema as JSON, with the banner in its first line."""
    _, _, body = f"{json.dumps(schema, indent=1)}\n".partition("\n")
    return SCHEMA.line(body, '{ "$comment": "', '",') + body


def _public(schema: Any) -> Any:
    """A schema without what only opgen's own language server knows, nor what says nothing then."""
    if isinstance(schema, dict):
        inner = ((key, _public(value)) for key, value in schema.items() if not key.startswith("x-"))
        return {key: value for key, value in inner if (key, value) != ("propertyNames", {}) and not _is_any(key, value)}
    return [_public(item) for item in schema] if isinstance(schema, list) else schema


def _is_any(key: str, value: Any) -> bool:
    """Whether a keyword takes everything."""
    return (key == "anyOf" and {} in value) or (key == "allOf" and all(item == {} for item in value))


class _Records:
    """The schemas of the records of one file; those inside others are definitions."""

    def __init__(self, variant: str) -> None:
        self._variant = variant
        self.definitions: dict[str, Schema] = {}

    def record(self, kind: Any) -> Schema:
        """A record by its keys."""
        keys = members(kind, self._variant).values()
        schema: Schema = {
            "description": doc_of_record(kind),
            "type": "object",
            "properties": {member.key: self._member(member) for member in keys},
            "required": [member.key for member in keys if member.is_required],
            "additionalProperties": False,
        }
        for hint, notes in others(kind, self._variant, Mark.OTHERS):
            extra = self._of(hint, notes)
            schema["additionalProperties"] = {"description": doc_of(notes), **extra["additionalProperties"]}
            if "propertyNames" in extra:
                schema["propertyNames"] = {"anyOf": [{"enum": list(schema["properties"])}, extra["propertyNames"]]}
        for hint, _ in others(kind, self._variant, Mark.INLINE):
            self._add_inline(schema, *options(hint))
        return schema

    def _add_inline(self, schema: Schema, either: Any, other: Any) -> None:
        """Add the keys of the one of two records whose first key is there."""
        own, alternative = self.record(either), self.record(other)
        schema["properties"] |= own["properties"] | alternative["properties"]
        schema["if"] = {"required": [next(iter(own["properties"]))]}
        refused = [key for key in alternative["properties"] if key not in own["properties"]]
        schema["then"] = {"required": own["required"], "properties": dict.fromkeys(refused, False)}
        schema["else"] = {"required": alternative["required"]}

    def _member(self, member: Member) -> Schema:
        schema = self._of(member.hint, member.notes)
        if not member.may_be_empty:
            schema |= {"minItems": 1} if schema.get("type") == "array" else {"minProperties": 1}
        return {"description": member.doc, **schema}

    def _of(self, hint: Any, notes: Notes = ()) -> Schema:
        """Return the schema of a value with a type and notes."""
        hint, notes = split(hint, notes)
        using = first(notes, Using)
        if using is not None:
            hint, notes = split(using.form, tuple(note for note in notes if note is not using))
        if Mark.NULL in notes:
            others = tuple(note for note in notes if note is not Mark.NULL)
            return {"anyOf": [self._of(hint, others), {"type": "null"}]}
        parts = [self._type(hint, notes), *(note.schema() for note in notes if hasattr(note, "schema"))]
        if Mark.ONE_OR_MORE in notes:
            one = self._of(get_args(hint)[0])
            return {"anyOf": [one, _joined(parts)]}
        return _joined(parts)

    def _type(self, hint: Any, notes: Notes) -> Schema:
        kinds = options(hint)
        if len(kinds) > 1:
            return {"anyOf": [self._of(kind) for kind in kinds]}
        (kind,) = kinds
        kind, more = split(kind)
        if more:
            return self._of(kind, more)
        origin, inner = get_origin(kind), get_args(kind)
        if hasattr(kind, "FORM"):
            return self._of(kind.FORM)
        if hasattr(kind, "parse"):
            return {"type": "string"}
        if members(kind, self._variant):
            return self._reference(kind)
        if origin is tuple and inner[1] is Location:
            return self._of(inner[0])
        if origin is tuple:
            leading = entry(split(inner[0])[0])
            if leading is not None:
                return self._mapping(leading, inner[0])
            return {"type": "array", "items": self._of(inner[0])}
        if origin is Mapping and inner[1] is Location:
            return {"type": "array", "items": self._of(inner[0]), "uniqueItems": True}
        if origin is Mapping:
            return self._mapping(*inner)
        if kind is object:
            return {}
        if kind is str and Mark.MAY_BE_EMPTY not in notes:
            return {"type": "string", "pattern": _TEXT}
        return {"type": _SCALARS[kind], **(_FINITE if kind is float else {})}

    def _mapping(self, key: Any, value: Any) -> Schema:
        rules = [note.schema() for note in split(key)[1] if hasattr(note, "schema")]
        names = {"propertyNames": _joined(map(_unspaced, rules))} if rules else {}
        return {"type": "object", **names, "additionalProperties": self._of(value)}

    def _reference(self, kind: Any) -> Schema:
        name = kind.__name__.strip("_")
        if name not in self.definitions:
            self.definitions[name] = {}  # of a record inside itself
            self.definitions[name] = self.record(kind)
        return {"$ref": f"#/$defs/{name}"}


def _joined(parts: Iterable[Mapping[str, Any]]) -> Schema:
    """Merge several schemas; a form may have another type than the value."""
    combined: Schema = {}
    others: list[Mapping[str, Any]] = []
    for part in parts:
        # A form that takes no blank text says all that the pattern of any text does.
        is_said = combined.get("pattern") == _TEXT and "pattern" in part and not re.search(part["pattern"], " ")
        if is_said or "type" in part or combined.keys().isdisjoint(part):
            combined |= part
        else:
            others.append(part)
    return {**combined, "allOf": others} if others else combined


def _unspaced(rule: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of a rule for a key, around which there is no space."""
    if "not" in rule:
        return {"not": _unspaced(rule["not"])}
    if "pattern" not in rule:
        return rule
    inner = rule["pattern"].removeprefix(r"^\s*").removesuffix(r"\s*$")
    return rule if inner == rule["pattern"] else exactly(inner).schema()


def doc_of(notes: Notes) -> str:
    """Return the description of a field."""
    return first(reversed(notes), str) or ""


def doc_of_record(kind: Any) -> str:
    """Return the description of a record, a line for each paragraph."""
    return "\n\n".join(" ".join(text.split()) for text in docstring_of(kind).split("\n\n"))


def _page(schemas: Mapping[str, Schema]) -> str:
    """The page that explains every key once: a section for each record, in the order in which files hold them."""
    records: dict[str, dict[str, Schema]] = {}  # by name, then by the file that has it so
    for file, schema in schemas.items():
        kind = next(kind for kind in FILE_KINDS if kind.name == file)
        for name, record in {kind.record.__name__: schema, **schema["$defs"]}.items():
            records.setdefault(name, {})[kind.path.as_posix()] = record
    roots = {kind.record.__name__ for kind in FILE_KINDS}
    return _INTRODUCTION + "".join(_section(name, name in roots, files) for name, files in records.items())


def _section(name: str, is_file: bool, files: Mapping[str, Schema]) -> str:
    """Return the section of a record that several kinds of files may have, some without some of its keys."""
    record = next(iter(files.values()))
    title = f"## {_paths(list(files))}" if is_file else f"### {_title(name)}"
    rows: dict[str, tuple[Schema, bool, list[str]]] = {}
    for file, each in files.items():
        required = {*each["required"], *each.get("then", {}).get("required", ())}
        for key, value in each["properties"].items():
            rows.setdefault(key, (value, key in required, []))[2].append(file)
        if each["additionalProperties"]:
            rows.setdefault("any other", (each["additionalProperties"], False, []))[2].append(file)
    lines = [_row(key, *row, is_some=len(row[2]) < len(files)) for key, row in rows.items()]
    return f"\n{title}\n\n{record['description']}\n\n| key | value | meaning |\n| --- | --- | --- |\n{''.join(lines)}"


def _paths(files: Sequence[str]) -> str:
    """Files of one folder, or one of several kinds."""
    folders = {file.rpartition("/")[0] for file in files}
    names = files if len(folders) > 1 or len(files) == 1 else [file.rpartition("/")[2] for file in files]
    shown = ", ".join(f"`{name}`" for name in names)
    return shown if names is files else f"`{folders.pop()}`: {shown}"


def _row(key: str, value: Schema, is_required: bool, files: Sequence[str], *, is_some: bool) -> str:
    needed = ", required" if is_required else ""
    only = f" Only in {_paths(files)}." if is_some else ""
    return f"| `{key}` | {_type_text(value)}{needed} | {value['description']}{only} |\n"


def _title(name: str) -> str:
    """The name of a class as people write it: BlockField -> Block field."""
    return re.sub(r"(?<=[a-z])[A-Z]", lambda match: f" {match[0].lower()}", name)


def _type_text(schema: Schema) -> str:
    """Return the type that a schema accepts, in words."""
    if not schema:
        return "any value"
    match schema:
        case {"$ref": reference}:
            title = _title(reference.rpartition("/")[2])
            return f"[{title.lower()}](#{title.lower().replace(' ', '-')})"
        case {"enum": values}:
            return " or ".join(f"`{value}`" for value in values)
        case {"type": "array", "items": items}:
            return f"list of {_type_text(items)}"
        case {"type": "object", "additionalProperties": value}:
            return f"mapping to {_type_text(value)}"
        case {"type": list() as types}:
            return " or ".join(_type_text({"type": each}) for each in types)
        case {"anyOf": either, "type": _} if any("enum" in one for one in either):
            return _type_text(next(one for one in either if "enum" in one))
        case {"anyOf": either}:
            return " or ".join(dict.fromkeys(map(_type_text, either)))
    return _WORDS[schema["type"]]

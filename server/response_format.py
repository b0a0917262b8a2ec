"""The form that a client asks for in a response: JSON that matches a schema, a choice, a grammar. Text completions and
the Realtime protocol describe it alike.

Types, and the grammars that they stand for.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from model.decode.grammar import Choice, Grammar, JSONObject, JSONSchema, Lark, Regex, csv, xml

MAX_CHOICES_CHARACTERS = 1 << 15
"""Of all choices together. The time for their grammar, in which no other thread runs, grows faster than they do."""


class StrictModel(BaseModel):
    """A part of a request or of a client event. An unknown field is an error that names it."""

    model_config = ConfigDict(extra="forbid", serialize_by_alias=True)


def without_nulls(fields: Any) -> Any:
    """The fields of an object that are not null: clients write fields of other kinds of parts as null. Anything else as
    it is."""
    return {name: one for name, one in fields.items() if one is not None} if isinstance(fields, dict) else fields


class VoiceID(StrictModel):
    """A voice by its name, in the form in which OpenAI's API names custom voices."""

    id: str = Field(max_length=256)


XMLName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,63}$")]
"""The name of an XML element."""


class JSONSchemaFormat(StrictModel):
    """A JSON schema that the response must match. `strict` makes no difference: every schema is enforced."""

    name: str = "answer"
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class GrammarFormat(StrictModel):
    """A grammar that the response must match."""

    syntax: Literal["lark", "regex"]
    definition: str


class CSVFormat(StrictModel):
    """Comma-separated values with a header and at least one row."""

    columns: list[str] = Field(min_length=1, max_length=64)
    max_rows: int = Field(1000, ge=1, le=1000)


class XMLFormat(StrictModel):
    """An XML element whose children contain text only; with more than one record, in elements `item`."""

    root: XMLName
    children: list[XMLName] = Field(min_length=1, max_length=64)
    max_records: int = Field(1, ge=1, le=1000)


class AnyFormat(StrictModel):
    """What a response must look like, but for JSON schemas, which OpenAI's endpoints write differently. `grammar`,
    `choice`, `csv` and `xml` are extensions."""

    type: Literal["text", "json_object", "json_schema", "grammar", "choice", "csv", "xml"] = "text"
    grammar: GrammarFormat | None = None
    choices: list[str] | None = Field(None, min_length=1, max_length=256)
    csv: CSVFormat | None = None
    xml: XMLFormat | None = None

    NEEDED: ClassVar[dict[str, str]] = {"grammar": "grammar", "choice": "choices", "csv": "csv", "xml": "xml"}
    """The field that each type needs."""

    SCHEMA_PATH: ClassVar[str] = ""
    """Where the JSON schema is."""

    @model_validator(mode="after")
    def _has_its_field(self) -> Self:
        for type_, name in self.NEEDED.items():
            if (getattr(self, name) is not None) != (self.type == type_):
                raise ValueError(f"the type {type_!r}, and no other, needs the field {name.rstrip('_')!r}")
        if sum(map(len, self.choices or ())) > MAX_CHOICES_CHARACTERS:
            raise ValueError(f"the choices have more than {MAX_CHOICES_CHARACTERS:,} characters together")
        return self

    @property
    def schema_given(self) -> dict[str, Any] | None:
        """The JSON schema, if there is one."""
        return None

    @property
    def as_grammar(self) -> Grammar | None:
        """What the response must follow; None for any text."""
        if self.type == "text":
            return None
        if self.schema_given is not None:
            return JSONSchema(self.schema_given)
        if self.grammar is not None:
            definition = self.grammar.definition
            return Lark(definition) if self.grammar.syntax == "lark" else Regex(definition)
        if self.choices is not None:
            return Choice(tuple(self.choices))
        if self.csv is not None:
            return csv(self.csv.columns, self.csv.max_rows)
        if self.xml is not None:
            return xml(self.xml.root, self.xml.children, self.xml.max_records)
        return JSONObject()

    def path_of(self, place: str) -> str:
        """The path, in this object, of a place in its grammar (`InvalidGrammar.path`)."""
        if self.schema_given is not None:
            return f"{self.SCHEMA_PATH}.{place}".rstrip(".")
        return "grammar.definition" if self.grammar is not None else self.NEEDED.get(self.type, "type")


class ResponseFormat(AnyFormat):
    """What a chat completion or a Realtime response must look like."""

    json_schema: JSONSchemaFormat | None = None

    NEEDED: ClassVar[dict[str, str]] = {**AnyFormat.NEEDED, "json_schema": "json_schema"}
    SCHEMA_PATH: ClassVar[str] = "json_schema.schema"

    @property
    def schema_given(self) -> dict[str, Any] | None:
        return None if self.json_schema is None else self.json_schema.schema_

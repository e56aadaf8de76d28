"""The settings of a process: read once from its environment, and frozen.

Each field is the variable RLFLEET_<FIELD>, and its docstring the variable's text in --help.
"""

from collections.abc import Iterator, Mapping
from textwrap import fill
from typing import Any, ClassVar, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

PREFIX = "RLFLEET_"


class SettingsError(ValueError):
    """Variables are missing or wrong; the message names each of them."""


class Settings(BaseModel):
    """The variables of a process."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", protected_namespaces=(), use_attribute_docstrings=True
    )
    FOREIGN: ClassVar[Mapping[str, str]] = {}
    """Variables with names of another program, by field."""
    IS_EMPTY_UNSET: ClassVar[bool] = True
    """Whether an empty variable counts as absent."""

    @classmethod
    def load(cls, environment: Mapping[str, str]) -> Self:
        """Read the settings; raises SettingsError. Other variables are ignored."""
        given = {name: environment.get(cls._variable(name)) for name in cls.model_fields}
        unset = {None, ""} if cls.IS_EMPTY_UNSET else {None}
        try:
            return cls.model_validate({name: t for name, t in given.items() if t not in unset})
        except ValidationError as error:
            raise SettingsError("; ".join(map(cls._complaint, error.errors()))) from error

    @classmethod
    def variables(cls) -> str:
        """Return name, type, default and description of each variable, for --help."""
        return "\n".join(cls._described())

    @classmethod
    def _described(cls) -> Iterator[str]:
        schemas = cls.model_json_schema()["properties"]
        for name, field in cls.model_fields.items():
            default = "required" if field.is_required() else f"default: {_text(field.default)}"
            yield f"  {cls._variable(name)} ({_type(schemas[name])}, {default})"
            yield fill(
                field.description or "", 96, initial_indent=" " * 6, subsequent_indent=" " * 6
            )

    @classmethod
    def _variable(cls, name: str) -> str:
        return cls.FOREIGN.get(name, PREFIX + name.upper())

    @classmethod
    def _complaint(cls, problem: ErrorDetails) -> str:
        name = str(problem["loc"][0])
        if problem["type"] == "missing":
            description = " ".join((cls.model_fields[name].description or "").split())
            return f"{cls._variable(name)} is not set: {description}"
        said = problem["msg"].removeprefix("Value error, ")
        return f"{cls._variable(name)}: {said} (got {str(problem['input'])!r:.60})"


class WorkerIdentity(Settings):
    """The worker that a process belongs to."""

    namespace: str = ""
    """The fleet's namespace, on each line of the log."""
    fleet: str = ""
    """The fleet's name, on each line of the log."""
    worker: str = ""
    """This pod's name, on each line of the log."""

    def identity(self) -> dict[str, str]:
        """Return the known names, as fields of a log line."""
        found = {name: str(getattr(self, name)) for name in WorkerIdentity.model_fields}
        return {name: text for name, text in found.items() if text}


def _split(names: object) -> object:
    return tuple(filter(str.strip, names.split(","))) if isinstance(names, str) else names


COMMA_SEPARATED = BeforeValidator(_split)


def _text(default: object) -> str:
    text = ",".join(default) if isinstance(default, tuple) else str(default)
    return text if default is not None and text else "none"


def _type(schema: Mapping[str, Any]) -> str:
    schema = next(iter(schema.get("anyOf", ())), schema)
    if "enum" in schema:
        return " or ".join(schema["enum"])
    return "list" if schema.get("type") == "array" else str(schema.get("type", "JSON"))

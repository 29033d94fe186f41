"""JSON Schemas that users and servers give us, compiled without reading anything else."""

from typing import Any

import jsonschema_rs

from stigmergy.errors import Invalid


def schema_validator(schema: dict[str, Any], where: str) -> jsonschema_rs.Validator:
    """`Invalid` for what is no JSON Schema, and for one that refers to another file or host: whoever gives it would have us
    read that, and wait for it while we write."""
    try:
        return jsonschema_rs.validator_for(schema, retriever=_refuse)
    except jsonschema_rs.ValidationError as error:
        raise Invalid(f"this is no JSON Schema ({error.message})", where, code="invalid_schema") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise Invalid(f"this is no JSON Schema ({error})", where, code="invalid_schema") from error


def _refuse(place: str) -> dict[str, Any]:
    raise ValueError(f"{place[:200]} is not read; put what it says under $defs")

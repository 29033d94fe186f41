"""What may be done to breadcrumbs and schemas. Each function is (part of) one unit of work.

Who may: a breadcrumb is changed by its owner, or by anybody in its audience when it is public; a reader that cannot see it
is told that it is not there. `if_match` is the version that the caller has seen.
"""

from collections.abc import Iterable
from typing import Any

import jsonschema_rs
import msgspec
from msgspec import UNSET

from stigmergy.access.model import Forbidden
from stigmergy.breadcrumbs.audience import Reader, sees, with_spaces
from stigmergy.breadcrumbs.hints import move_inline_hints, parse_hints
from stigmergy.breadcrumbs.model import (
    LONGEST_TTL_MS,
    Breadcrumb,
    Draft,
    JsonObject,
    Patch,
    Schema,
    check_name,
    check_tags,
    check_text,
    check_time,
    checked_context,
    is_live,
    is_same,
    merge_patch,
)
from stigmergy.breadcrumbs.schemas import Schemas
from stigmergy.errors import Invalid, NotFound, VersionConflict
from stigmergy.kernel.history import purge
from stigmergy.kernel.json_schemas import schema_validator
from stigmergy.kernel.timers import Timer, cancel_timer, set_timer
from stigmergy.kernel.transaction import Transaction

EXPIRY = "breadcrumb.expiry"
VIOLATION = "schema_violation"


async def create(tx: Transaction, draft: Draft, schemas: Schemas | None = None, *, reader: Reader | None = None) -> Breadcrumb:
    """Write a new breadcrumb. `schemas` are those that its unit has read; `reader` is who asked for it, where somebody did."""
    check_name(draft.schema_name)
    await _check_team(tx, reader, draft.space_id)
    if draft.id:
        await _clear(tx, draft.id)
    schema = await (schemas or Schemas(tx)).of(draft.schema_name)
    context, hints = _parted(draft.context, draft.llm_hints)
    crumb = Breadcrumb(
        id=draft.id or tx.new_id(),
        owner_id=draft.owner_id or tx.actor,
        schema_name=draft.schema_name,
        title=draft.title,
        description=draft.description,
        tags=draft.tags,
        context=context,
        llm_hints=hints,
        audience=draft.audience,
        space_id=draft.space_id,
        expires_at=_expiry(tx, draft, schema),
        created_by=tx.actor,
        updated_by=tx.actor,
    )
    stored = await tx.insert(_checked(crumb, schema))
    await _time(tx, stored)
    return stored


async def create_many(
    tx: Transaction, drafts: Iterable[Draft], schemas: Schemas | None = None, *, reader: Reader | None = None
) -> list[Breadcrumb]:
    """All of them or none. A fault names its place."""
    schemas = schemas or Schemas(tx)
    made: list[Breadcrumb] = []
    for place, draft in enumerate(drafts):
        try:
            made.append(await create(tx, draft, schemas, reader=reader))
        except Invalid as error:
            raise error.inside(f"[{place}]") from error
    return made


async def patch(tx: Transaction, reader: Reader, id: str, change: Patch, *, if_match: int | None = None) -> Breadcrumb:
    """Change what is given; the context by JSON Merge Patch."""
    stored = await _mine(tx, reader, id, if_match)
    schemas = Schemas(tx)
    fields = {name: value for name in change.__struct_fields__ if (value := getattr(change, name)) is not UNSET}
    if "context" in fields:
        given, inline = move_inline_hints(fields["context"])
        if "llm_hints" in fields["context"]:  # hints of a context are beside it once it is stored
            fields.setdefault("llm_hints", inline)
        fields["context"] = merge_patch(stored.context, given)
    if "llm_hints" in fields and not is_same(fields["llm_hints"], stored.llm_hints):
        await _demand_full(schemas, reader, stored)
    if fields.get("space_id", stored.space_id) != stored.space_id:
        await _check_team(tx, reader, fields["space_id"])
    try:
        return await _change(tx, stored, fields, schemas)
    except Invalid as error:
        if error.code != VIOLATION or _has_full(reader, stored):
            raise
        # the message has the value, which may be one that hints hide
        raise Invalid("this is not as the schema of its name asks", error.where, VIOLATION) from None


async def replace(tx: Transaction, reader: Reader, id: str, draft: Draft, *, if_match: int | None = None) -> Breadcrumb:
    """Put a whole breadcrumb in the place of the stored one; where it was deleted, it is there again."""
    if draft.id not in (None, id):
        raise Invalid(f"this is to be put in the place of {id[:200]}, and has another id", "id")
    stored = await tx.lock(Breadcrumb, id)
    if stored is None or not is_live(stored, tx.now):
        if if_match is not None:
            raise VersionConflict(f"breadcrumb {id} is not there, so it has no version {if_match}; replace it without If-Match")
        return await create(tx, msgspec.structs.replace(draft, id=id), reader=reader)
    stored = await _mine(tx, reader, id, if_match)
    if draft.space_id != stored.space_id:
        await _check_team(tx, reader, draft.space_id)
    fields: dict[str, Any] = {name: getattr(draft, name) for name in Patch.__struct_fields__}
    schemas = Schemas(tx)
    fields |= {"schema_name": draft.schema_name, "expires_at": _expiry(tx, draft, await schemas.of(draft.schema_name))}
    return await _change(tx, stored, fields, schemas)


async def retag(tx: Transaction, reader: Reader, id: str, *, add: Iterable[str] = (), remove: Iterable[str] = ()) -> Breadcrumb:
    """Add and remove tags, whatever the version: two callers at once both get their way."""
    stored = await _mine(tx, reader, id, None)
    gone = frozenset(remove)
    tags = check_tags([tag for tag in (*stored.tags, *add) if tag not in gone])
    return stored if tags == stored.tags else await tx.update(stored, tags=tags, updated_by=tx.actor)


async def delete(tx: Transaction, reader: Reader, id: str, *, if_match: int | None = None) -> None:
    """Take a breadcrumb away. Its history stays."""
    await tx.delete(await _mine(tx, reader, id, if_match))
    await cancel_timer(tx, EXPIRY, id)


async def erase(tx: Transaction, id: str) -> None:
    """Take a breadcrumb away with every body it ever had."""
    await purge(tx, Breadcrumb, id)
    await cancel_timer(tx, EXPIRY, id)


async def expire(tx: Transaction, timer: Timer) -> None:
    """The effect of the expiry timer: a deletion like any other, a change."""
    stored = await tx.lock(Breadcrumb, timer.id)
    if stored is not None and not is_live(stored, tx.now):
        await tx.delete(stored)


async def put_schema(tx: Transaction, schema: Schema) -> Schema:
    """Say something of all breadcrumbs with this schema_name, from now on."""
    check_name(schema.name, "name")
    _check_hints(schema.llm_hints)
    if schema.ttl_ms is not None and not 0 < schema.ttl_ms <= LONGEST_TTL_MS:
        raise Invalid("a time to live is more than 0 milliseconds and at most 100 years", "ttl_ms")
    if schema.json_schema is not None:
        _validator(schema.json_schema)
    stored = await tx.lock(Schema, schema.name)
    if stored is None:
        return await tx.insert(schema)
    return await tx.update(stored, json_schema=schema.json_schema, llm_hints=schema.llm_hints, ttl_ms=schema.ttl_ms)


async def delete_schema(tx: Transaction, name: str) -> None:
    stored = await tx.lock(Schema, name)
    if stored is None:
        raise NotFound(f"no schema {name}")
    await tx.delete(stored)


async def _change(tx: Transaction, stored: Breadcrumb, fields: dict[str, Any], schemas: Schemas) -> Breadcrumb:
    if "context" in fields:
        hints = fields.get("llm_hints", stored.llm_hints)
        fields["context"], fields["llm_hints"] = _parted(fields["context"], hints)
    name = fields.get("schema_name", stored.schema_name)
    check_name(name)
    schema = await schemas.of(name)
    checked = _checked(msgspec.structs.replace(stored, **fields), schema)
    wanted = {name: getattr(checked, name) for name in (*fields, "tags", "checksum")}
    changed = {name: value for name, value in wanted.items() if not is_same(value, getattr(stored, name))}
    if not changed:
        return stored
    after = await tx.update(stored, **changed, updated_by=tx.actor)
    if "expires_at" in changed:
        await _time(tx, after)
    return after


async def _demand_full(schemas: Schemas, reader: Reader, stored: Breadcrumb) -> None:
    """Who changes what hides something could show it to themselves."""
    schema = await schemas.of(stored.schema_name)
    is_hinted = stored.llm_hints is not None or (schema is not None and schema.llm_hints is not None)
    if is_hinted and not _has_full(reader, stored):
        raise Forbidden(f"breadcrumb {stored.id} has hints that only its owner or an operator changes; replace it as a whole")


def _has_full(reader: Reader, stored: Breadcrumb) -> bool:
    return reader.everything or stored.owner_id == reader.entity


async def _check_team(tx: Transaction, reader: Reader | None, space_id: str | None) -> None:
    """What is for a space's members is written by them, so that what they read there is not put there by others."""
    if reader is None or space_id is None or reader.everything:
        return
    if space_id not in ((await with_spaces(tx, reader)).spaces or ()):
        raise Invalid("you are in no such space; what is for a team is written by its members", "space_id")


async def _mine(tx: Transaction, reader: Reader, id: str, if_match: int | None) -> Breadcrumb:
    stored = await tx.lock(Breadcrumb, id)
    if stored is None or not await sees(tx, reader, stored):
        raise NotFound(f"no breadcrumb {id}")
    if if_match is not None and stored.version != if_match:
        raise VersionConflict(f"breadcrumb {id} is at version {stored.version}, not {if_match}; read it again and repeat")
    return stored


async def _time(tx: Transaction, crumb: Breadcrumb) -> None:
    if crumb.expires_at is not None:
        await set_timer(tx, EXPIRY, crumb.id, crumb.expires_at)
    elif crumb.version > 1:
        await cancel_timer(tx, EXPIRY, crumb.id)


async def _clear(tx: Transaction, id: str) -> None:
    """What has expired under this id is taken away now, if it was not swept yet: its id is free for who can see that it is."""
    stored = await tx.lock(Breadcrumb, id)
    if stored is not None and not is_live(stored, tx.now):
        await tx.delete(stored)
        await cancel_timer(tx, EXPIRY, id)


def _expiry(tx: Transaction, draft: Draft, schema: Schema | None) -> int | None:
    if draft.expires_at is not None or schema is None or schema.ttl_ms is None:
        return draft.expires_at
    return tx.now + schema.ttl_ms


def _parted(context: JsonObject, hints: JsonObject | None) -> tuple[JsonObject, JsonObject | None]:
    """Hints inside the context, as some writers have them, are moved beside it."""
    if "llm_hints" not in context:
        return context, hints
    bare, inline = move_inline_hints(context)
    return bare, hints if hints is not None else inline


def _check_hints(hints: JsonObject | None) -> None:
    try:
        parse_hints(hints)
    except Invalid as error:
        raise error.inside("llm_hints") from error


def _checked(crumb: Breadcrumb, schema: Schema | None) -> Breadcrumb:
    """The breadcrumb as it may be stored, with its checksum."""
    check_text(crumb.title, "title")
    check_text(crumb.description, "description")
    check_time(crumb.expires_at, "expires_at")
    for where, name in (("id", crumb.id), ("owner_id", crumb.owner_id)):
        if name in ("", ".", "..") or len(name) > 200 or "\0" in name or "/" in name:
            raise Invalid("an id has 1 to 200 characters, no slash and no NUL, and is not `.` or `..`", where)
    if (crumb.audience == "team") != (crumb.space_id is not None):
        raise Invalid("the audience `team` names its space, and no other audience does", "space_id")
    _check_hints(crumb.llm_hints)
    checksum = checked_context(crumb.context)
    if schema is not None and schema.json_schema is not None:
        _validate(schema.json_schema, crumb.context)
    return msgspec.structs.replace(crumb, tags=check_tags(crumb.tags), checksum=checksum)


_validators: dict[bytes, jsonschema_rs.Validator] = {}


def _validator(json_schema: JsonObject) -> jsonschema_rs.Validator:
    key = msgspec.json.encode(json_schema)
    validator = _validators.get(key)
    if validator is None:
        validator = schema_validator(json_schema, "json_schema")
        if len(_validators) >= 1_000:
            _validators.clear()
        _validators[key] = validator
    return validator


def _validate(json_schema: JsonObject, context: JsonObject) -> None:
    fault = next(iter(_validator(json_schema).iter_errors(context)), None)
    if fault is not None:
        path = ".".join(str(part) for part in fault.instance_path)
        raise Invalid(fault.message, f"context.{path}" if path else "context", code=VIOLATION)

"""Settings: one place, read from arguments, environment, file and defaults, in this order.

Each field is one setting: `STIGMERGY_<NAME>` in the environment, `<name>` in `stigmergy.toml`. Its description is its
documentation; `docs/settings.md` is made from it.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta

from stigmergy.errors import Invalid

PREFIX = "STIGMERGY_"
FILE = "stigmergy.toml"


def _about(text: str, **limits: Any) -> Meta:
    return Meta(description=text, **limits)


_Natural = Annotated[int, Meta(ge=0)]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    store: Annotated[
        str, _about("Where the facts are: a file's path, or a URL such as `postgresql://user:password@host/name`.")
    ] = "stigmergy.db"
    owner_store: Annotated[
        str | None, _about("The same database as a user who may migrate it, where `store` is one who may not.")
    ] = None
    host: Annotated[str, _about("The address that `serve` listens on.")] = "127.0.0.1"
    port: Annotated[int, _about("The port that `serve` listens on; 0 takes a free one.", ge=0, le=65535)] = 8420
    secret: Annotated[
        str | None, _about("What tokens are signed with, 16 characters or more. Unset: no token is asked for, on loopback alone.")
    ] = None
    origins: Annotated[
        tuple[str, ...],
        _about("Pages that may call the server from a browser, such as `https://app.example`; in a variable, with commas."),
    ] = ()
    max_body: Annotated[int, _about("Bytes that the body of a request may have.", gt=0)] = 8 * 1024 * 1024
    request_seconds: Annotated[float, _about("How long a request may take, its body included. Feeds have no end.", gt=0)] = 30.0
    synchronous: Annotated[
        Literal["FULL", "NORMAL", "EXTRA"],
        _about("When a SQLite commit is safe: `FULL` survives a power failure; `NORMAL` may lose the last commits in one."),
    ] = "FULL"
    busy_seconds: Annotated[
        float, _about("How long a write waits for another process that writes the same SQLite file.", gt=0)
    ] = 5.0
    keep_days: Annotated[
        _Natural | None, _about("Changes older than this leave the journal, unless something needs them. Unset: never.")
    ] = None
    keep_changes: Annotated[
        _Natural | None, _about("How many changes a tenant's journal keeps at the most, unless something needs more.")
    ] = None
    sweep_seconds: Annotated[float, _about("How often the server drops what need not be kept any longer.", gt=0)] = 60.0
    embedder: Annotated[
        str, _about("What turns texts into vectors: `wordllama`, `off` (search by words alone), or an OpenAI-compatible URL.")
    ] = "wordllama"
    embedder_model: Annotated[str, _about("The model that an embedder at a URL is asked for.")] = "text-embedding-3-small"
    embedder_dimensions: Annotated[int, _about("How many numbers its vectors have.", ge=1, le=16_000)] = 1_536
    embedder_key: Annotated[str | None, _about("The key that it wants, if any.")] = None
    lease_seconds: Annotated[
        float, _about("After how long without a sign of life a worker counts as dead, and others take over what it had.", gt=0)
    ] = 15.0
    triggers: Annotated[
        str | None, _about("A file of triggers, `triggers.json` or `.toml`, that holds for the tenant `main` while it is named.")
    ] = None
    work: Annotated[bool, _about("Whether this process works on runs; another one on the same store may.")] = True
    concurrent_runs: Annotated[int, _about("How many runs this process works on at once, at the most.", gt=0)] = 64
    deliver: Annotated[bool, _about("Whether this process hands over deliveries; another one on the same store may.")] = True
    webhook_base: Annotated[
        str | None, _about("What stands before the path of a short action: `POST /hook` behind `https://example.org/api`.")
    ] = None
    webhook_secret: Annotated[
        str | None,
        _about("Signs the deliveries of triggers without a secret of their own: `whsec_` and base64. Unset: unsigned."),
    ] = None
    webhook_networks: Annotated[
        tuple[str, ...],
        _about("Private networks that webhooks and gateway tools may call, such as `10.1.0.0/16`; loopback, when `host` is it."),
    ] = ()
    telemetry: Annotated[
        Literal["off", "metrics", "all"],
        _about("`metrics`: `/metrics` in Prometheus' format. `all`: traces too, over OTLP as OTEL_EXPORTER_OTLP_… say."),
    ] = "off"
    log_format: Annotated[Literal["text", "json"], _about("How a line of the log looks; `json` is for machines.")] = "text"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], _about("What the server writes to its log, on standard error.")
    ] = "info"


def load(
    arguments: Mapping[str, Any] | None = None, *, environment: Mapping[str, str] | None = None, file: Path | None = None
) -> Settings:
    """The settings in force. An argument that is None was not given."""
    values = _from_file(file or Path(FILE), required=file is not None)
    values |= _from_environment(os.environ if environment is None else environment)
    return _with(values, arguments or {})


def changed(settings: Settings, arguments: Mapping[str, Any]) -> Settings:
    """The same but for these arguments. One that is None was not given."""
    return _with(msgspec.structs.asdict(settings), arguments)


def _with(values: dict[str, Any], arguments: Mapping[str, Any]) -> Settings:
    given = {name: value for name, value in arguments.items() if value is not None}
    try:
        return msgspec.convert(values | given, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise Invalid(f"{error}. `stigmergy settings` lists them all", "settings") from error


def _from_file(path: Path, *, required: bool) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if required:
            raise Invalid("there is no such settings file", str(path)) from None
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise Invalid(f"this settings file cannot be read ({error})", str(path)) from error


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    known = {PREFIX + field.name.upper(): field.name for field in msgspec.structs.fields(Settings)}
    given: dict[str, Any] = {name: environment[variable] for variable, name in known.items() if variable in environment}
    for name in ("origins", "webhook_networks"):
        if name in given:
            given[name] = [item for part in given[name].split(",") if (item := part.strip())]
    return given


class Described(msgspec.Struct, frozen=True):
    """One setting, for people."""

    name: str
    variable: str
    kind: str
    default: str
    about: str


def described() -> list[Described]:
    found: list[Described] = []
    for field in msgspec.structs.fields(Settings):
        inner, meta = get_args(field.type)
        default = "" if field.default is None else str(field.default)
        found.append(Described(field.name, PREFIX + field.name.upper(), _kind(inner), default, meta.description))
    return found


def _kind(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " | ".join(get_args(annotation))
    if get_origin(annotation) is Annotated:
        return _kind(get_args(annotation)[0])
    if get_origin(annotation) is tuple:
        return "list"
    members = [member for member in get_args(annotation) if member is not type(None)]
    return " | ".join(_kind(member) for member in members) if members else annotation.__name__

"""Every error a user can meet, in one tree.

Each class has a stable `code`, an HTTP `status` and whether trying again can help (`retryable`). The message says what was
wrong and what to do. An error is raised where its rule is; the API maps it to a response in one place.

StigmergyError
├── StoreError                 the store itself
│   ├── StoreUnavailable       it cannot be opened or reached now
│   ├── StoreUnusable          a corrupt, foreign or unsuitable file or database
│   ├── SchemaTooNew           the store was written by a newer program
│   ├── SchemaTooOld           the store has not been migrated to this program
│   ├── StoreFull              no space left; nothing was written
│   ├── StoreClosed            closed, by the user or after a failure
│   └── OutcomeUnknown         a commit whose fate nobody can tell; never retried blindly
├── UnitError                  a unit of work that breaks the rules of units
│   └── UnitAwaited            it awaited something other than its transaction
├── Conflict                   the write lost to another one
│   ├── VersionConflict        the record has another version than expected
│   ├── AlreadyExists          a record with that key is there
│   ├── KeyReused              an idempotency key came back with another body
│   └── LeaseLost              another worker holds it now
├── NotFound                   no such record
│   └── Erased                 it was there, and its body was erased
├── Invalid                    input that is refused; `where` is the place of the fault
├── EmbedderUnavailable        the model that turns texts into vectors cannot be reached now
└── CursorExpired              a position older than the retained journal
"""


class StigmergyError(Exception):
    code = "internal"
    status = 500
    retryable = False


class StoreError(StigmergyError):
    code = "store_error"
    status = 503


class StoreUnavailable(StoreError):
    code = "store_unavailable"
    retryable = True


class StoreUnusable(StoreError):
    code = "store_unusable"


class SchemaTooNew(StoreError):
    code = "schema_too_new"


class SchemaTooOld(StoreError):
    code = "schema_too_old"


class StoreFull(StoreError):
    code = "store_full"
    status = 507
    retryable = True


class StoreClosed(StoreError):
    code = "store_closed"


class OutcomeUnknown(StoreError):
    code = "outcome_unknown"


class UnitError(StigmergyError):
    code = "unit_error"


class UnitAwaited(UnitError):
    code = "unit_awaited"


class Conflict(StigmergyError):
    code = "conflict"
    status = 409


class VersionConflict(Conflict):
    code = "version_conflict"
    status = 412


class AlreadyExists(Conflict):
    code = "already_exists"


class KeyReused(Conflict):
    code = "idempotency_key_reused"


class LeaseLost(Conflict):
    code = "lease_lost"


class NotFound(StigmergyError):
    code = "not_found"
    status = 404


class Erased(NotFound):
    code = "erased"
    status = 410


class Invalid(StigmergyError):
    """Input that is refused. `where` names the place of the fault: a field path, a line, an argument."""

    code = "invalid"
    status = 422

    def __init__(self, message: str, where: str | None = None, code: str | None = None) -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.message = message
        self.where = where
        if code is not None:
            self.code = code

    def inside(self, place: str) -> "Invalid":
        """The same fault, seen from what surrounds it."""
        return Invalid(self.message, f"{place}.{self.where}" if self.where else place, self.code)


# What an `Invalid` is called where a program may want to tell it from others.
REFUSALS = {
    "in_the_past": "A moment that is over already.",
    "invalid_answer": "An answer that is not what the agent's output wants.",
    "invalid_arguments": "Arguments that do not fit the tool.",
    "invalid_condition": "A condition that cannot be read or run safely; `where` has line and column.",
    "invalid_cron": "No cron expression.",
    "invalid_event": "No event of a rule, or a shorthand that cannot be read.",
    "invalid_hints": "A rule of `llm_hints` that is wrong.",
    "invalid_pattern": "A pattern of collections that can match nothing.",
    "invalid_result": "A tool gave what JSON cannot say.",
    "invalid_schema": "No JSON Schema, or one that refers to another file or host.",
    "invalid_selector": "A selector that is wrong.",
    "invalid_value": "A value that the store or JSON cannot hold.",
    "malformed": "The body is not JSON.",
    "no_secret": "The server asks for no tokens, so it gives none.",
    "not_embeddable": "The model that turns texts into vectors refuses this text.",
    "schema_violation": "A context that its schema does not allow; `where` is the path.",
    "too_deep": "More levels of objects and lists than are allowed.",
    "too_large": "More than is stored in one piece.",
    "unknown_collection": "No collection has this name or fits this pattern.",
    "unknown_event": "No event has this name.",
    "unknown_time_zone": "No time zone has this name.",
    "unknown_tool": "The agent has no such tool.",
}


class EmbedderUnavailable(StigmergyError):
    code = "embedder_unavailable"
    status = 503
    retryable = True


class CursorExpired(StigmergyError):
    """The journal no longer reaches back to the cursor; `oldest` is the first position that is still there."""

    code = "cursor_expired"
    status = 410

    def __init__(self, message: str, oldest: int) -> None:
        super().__init__(message)
        self.oldest = oldest

"""Identifiers: UUIDv7 text, so that new keys go to the right edge of every index."""

import re
from functools import lru_cache

import uuid_utils

from stigmergy.errors import Invalid

TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@:-]{0,127}")


def new_id() -> str:
    return str(uuid_utils.uuid7())


@lru_cache(maxsize=10_000)
def check_tenant(tenant: str) -> str:
    """A tenant's name is letters, digits and `_.@:-`, so that it can stand in a setting, a path and a header as it is."""
    if TENANT.fullmatch(tenant) is None:
        raise Invalid(f"{tenant[:40]!r} cannot name a tenant; use 1 to 128 letters, digits or _.@:-", "tenant")
    return tenant

"""Looking after a PostgreSQL database: its settings, and a dump of it while it is in use."""

import asyncio
import os
import shutil
from pathlib import Path

from stigmergy.errors import Invalid, StoreUnusable
from stigmergy.kernel.database import Finding
from stigmergy.kernel.postgres_schema import EVERY_TENANT, Connection

_WANTED = {"fsync": "on", "full_page_writes": "on"}


async def check_server(connection: Connection) -> list[Finding]:
    findings: list[Finding] = []
    for name, wanted in _WANTED.items():
        value = await connection.fetchval("SELECT current_setting($1)", name)
        findings.append(
            Finding(f"setting: {name}", value == wanted, value, f"acknowledged writes may be lost; set it to {wanted}")
        )
    waits = await connection.fetchval("SELECT current_setting('synchronous_commit')")
    findings.append(
        Finding("setting: synchronous_commit", waits != "off", waits, "the last commits may be lost in a crash; set it to on")
    )
    mighty = await connection.fetchval("SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user")
    findings.append(
        Finding(
            "row-level security holds",
            not mighty,
            "for the role in use" if not mighty else "not for the role in use",
            "connect as a plain role that does not own the tables",
        )
    )
    return findings


async def back_up(url: str, target: Path) -> None:
    """pg_dump in its custom format; `pg_restore` brings it back."""
    if await asyncio.to_thread(target.exists):
        raise Invalid("this file is there already; choose another name for the backup", str(target))
    program = shutil.which("pg_dump")
    if program is None:
        raise StoreUnusable("a backup of PostgreSQL is made by pg_dump, which is not on the PATH; install postgresql-client")
    partial = target.with_name(f"{target.name}.partial")
    arguments = ("--format=custom", "--enable-row-security", f"--file={partial}", f"--dbname={url}")
    environment = os.environ | {"PGOPTIONS": f"-c stigmergy.tenants={EVERY_TENANT}"}
    try:
        dump = await asyncio.create_subprocess_exec(program, *arguments, env=environment, stderr=asyncio.subprocess.PIPE)
        _, said = await dump.communicate()
        if dump.returncode:
            raise StoreUnusable(f"pg_dump failed: {said.decode(errors='replace').strip()}")
        os.replace(partial, target)
    except OSError as error:
        raise Invalid(f"the backup cannot be written ({error.strerror})", str(target)) from error
    finally:
        partial.unlink(missing_ok=True)

-- The engine's own bookkeeping: not records, not journalled.

CREATE TABLE workers (
    id         TEXT NOT NULL PRIMARY KEY,
    counter    BIGINT NOT NULL,       -- moves while the worker lives
    alive      BOOLEAN NOT NULL,
    started_at BIGINT NOT NULL,
    describes  TEXT NOT NULL
);

CREATE TABLE ready (
    queue      TEXT NOT NULL,
    tenant     TEXT NOT NULL,
    id         TEXT NOT NULL,
    due_at     BIGINT NOT NULL,
    worker     TEXT,
    fence      BIGINT NOT NULL,       -- grows with every claim; a writer that holds an older one is refused
    PRIMARY KEY (tenant, queue, id)
);
CREATE INDEX ready_due ON ready (queue, due_at) WHERE worker IS NULL;
CREATE INDEX ready_worker ON ready (worker) WHERE worker IS NOT NULL;

CREATE TABLE timers (
    tenant     TEXT NOT NULL,
    kind       TEXT NOT NULL,
    id         TEXT NOT NULL,
    due_at     BIGINT NOT NULL,
    PRIMARY KEY (tenant, kind, id)
);
CREATE INDEX timers_due ON timers (due_at);

CREATE TABLE idempotency (
    tenant     TEXT NOT NULL,
    actor      TEXT NOT NULL,
    route      TEXT NOT NULL,
    key        TEXT NOT NULL,
    request    {blob} NOT NULL,       -- hash of the body
    answer     {blob} NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, actor, route, key)
);
CREATE INDEX idempotency_age ON idempotency (tenant, created_at);

CREATE TABLE blocks (
    tenant     TEXT NOT NULL,
    hash       TEXT NOT NULL,
    size       BIGINT NOT NULL,
    media_type TEXT NOT NULL,
    body       {blob},                -- NULL once it was erased
    created_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, hash)
);

-- Readers that come back: the journal is kept for them, up to the lag they registered.
CREATE TABLE followers (
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    cursor     BIGINT NOT NULL,
    max_lag    BIGINT NOT NULL,       -- changes
    seen_at    BIGINT NOT NULL,
    PRIMARY KEY (tenant, name)
);

-- Versions that something still shows: a run's provenance, a branch.
CREATE TABLE pins (
    tenant     TEXT NOT NULL,
    collection TEXT NOT NULL,
    id         TEXT NOT NULL,
    version    BIGINT NOT NULL,
    holder     TEXT NOT NULL,
    PRIMARY KEY (tenant, collection, id, version, holder)
);
CREATE INDEX pins_holder ON pins (tenant, holder);

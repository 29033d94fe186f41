-- The journal: thin changes, superseded bodies, and what a deleted record leaves behind.

CREATE TABLE heads (
    tenant TEXT NOT NULL PRIMARY KEY,
    seq    BIGINT NOT NULL,           -- the last position given out
    rules  BIGINT NOT NULL            -- the position of the last change of a rule
) {clustered};

CREATE TABLE changes (
    tenant     TEXT NOT NULL,
    seq        BIGINT NOT NULL,
    collection TEXT NOT NULL,
    id         TEXT NOT NULL,
    version    BIGINT NOT NULL,
    event      TEXT NOT NULL CHECK (event IN ('create', 'update', 'delete')),
    actor      TEXT NOT NULL,
    at         BIGINT NOT NULL,
    cause      BIGINT,                -- the seq of the change that led to this one
    depth      BIGINT NOT NULL,
    PRIMARY KEY (tenant, seq)
) {clustered};

CREATE TABLE versions (
    tenant     TEXT NOT NULL,
    collection TEXT NOT NULL,
    id         TEXT NOT NULL,
    version    BIGINT NOT NULL,
    seq        BIGINT NOT NULL,       -- the change that made this version
    body       {blob},                -- NULL once it was erased
    PRIMARY KEY (tenant, collection, id, version)
);

CREATE TABLE tombstones (
    tenant     TEXT NOT NULL,
    collection TEXT NOT NULL,
    id         TEXT NOT NULL,
    version    BIGINT NOT NULL,       -- of the deletion; a record made again goes on from here
    seq        BIGINT NOT NULL,
    PRIMARY KEY (tenant, collection, id)
) {clustered};
CREATE INDEX tombstones_seq ON tombstones (tenant, collection, seq);

-- What a change sets off. A row is one rule; who started it is the part that its kind belongs to.
CREATE TABLE rules (
    tenant     TEXT NOT NULL,
    id         TEXT NOT NULL,
    owner      TEXT NOT NULL,         -- the app whose code declares it, or the actor that made it
    kind       TEXT NOT NULL,
    collection TEXT NOT NULL,
    events     {json} NOT NULL,
    selector   {json},
    condition  TEXT,
    action     {json} NOT NULL,
    position   BIGINT NOT NULL,
    max_depth  BIGINT NOT NULL,
    enabled    BOOLEAN NOT NULL,
    version    BIGINT NOT NULL,
    seq        BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX rules_seq ON rules (tenant, seq);

-- What went wrong while matching, once for each rule version and kind of fault.
CREATE TABLE diagnostics (
    tenant     TEXT NOT NULL,
    id         TEXT NOT NULL,
    kind       TEXT NOT NULL,
    rule       TEXT,
    message    TEXT NOT NULL,
    change_seq BIGINT NOT NULL,
    version    BIGINT NOT NULL,
    seq        BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX diagnostics_seq ON diagnostics (tenant, seq);

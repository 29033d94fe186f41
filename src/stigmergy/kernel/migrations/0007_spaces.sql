-- Entities, spaces, what is said in them, and what entities keep.
CREATE TABLE entities (
    tenant     TEXT NOT NULL,
    id         TEXT NOT NULL,
    type       TEXT NOT NULL CHECK (type IN ('human', 'agent')),
    name       TEXT NOT NULL,
    agent      TEXT,
    version    BIGINT NOT NULL,
    seq        BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
) {clustered};
CREATE INDEX entities_seq ON entities (tenant, seq);

CREATE TABLE spaces (
    tenant     TEXT NOT NULL,
    id         TEXT NOT NULL,
    owner_id   TEXT NOT NULL,
    name       TEXT NOT NULL,
    about      TEXT NOT NULL,
    metadata   {json} NOT NULL,
    version    BIGINT NOT NULL,
    seq        BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
) {clustered};
CREATE INDEX spaces_seq ON spaces (tenant, seq);
CREATE INDEX spaces_owner ON spaces (tenant, owner_id, created_at);

CREATE TABLE memberships (
    tenant                    TEXT NOT NULL,
    space_id                  TEXT NOT NULL,
    entity_id                 TEXT NOT NULL,
    joined_pos                BIGINT NOT NULL,
    last_processed_message_id TEXT,
    last_processed_pos        BIGINT NOT NULL,
    version                   BIGINT NOT NULL,
    seq                       BIGINT NOT NULL,
    created_at                BIGINT NOT NULL,
    updated_at                BIGINT NOT NULL,
    PRIMARY KEY (tenant, space_id, entity_id)
) {clustered};
CREATE INDEX memberships_seq ON memberships (tenant, seq);
CREATE INDEX memberships_entity ON memberships (tenant, entity_id);

-- `pos` numbers the messages of a space without gaps; `seq` is, as everywhere, the position in the journal.
CREATE TABLE space_messages (
    tenant      TEXT NOT NULL,
    id          TEXT NOT NULL,
    space_id    TEXT NOT NULL,
    pos         BIGINT NOT NULL,
    owner_id    TEXT NOT NULL,
    role        TEXT NOT NULL CHECK (role IN ('human', 'agent', 'system', 'tool')),
    author      TEXT NOT NULL,
    author_name TEXT NOT NULL,
    content     TEXT NOT NULL,
    parts       {json},
    metadata    {json},
    mentions    {json} NOT NULL,
    wakes       {json} NOT NULL,
    run_id      TEXT,
    reply_to    TEXT,
    stream_id   TEXT,
    deleted     BOOLEAN NOT NULL,
    version     BIGINT NOT NULL,
    seq         BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX space_messages_seq ON space_messages (tenant, seq);
CREATE UNIQUE INDEX space_messages_pos ON space_messages (tenant, space_id, pos);

CREATE TABLE clients (
    tenant     TEXT NOT NULL,
    id         TEXT NOT NULL,
    entity_id  TEXT NOT NULL,
    name       TEXT NOT NULL,
    tools      {json} NOT NULL,
    expires_at BIGINT NOT NULL,
    version    BIGINT NOT NULL,
    seq        BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
) {clustered};
CREATE INDEX clients_seq ON clients (tenant, seq);
CREATE INDEX clients_entity ON clients (tenant, entity_id);

CREATE TABLE memories (
    tenant     TEXT NOT NULL,
    entity_id  TEXT NOT NULL,
    key        TEXT NOT NULL,
    value      {json} NOT NULL,
    importance DOUBLE PRECISION NOT NULL,
    version    BIGINT NOT NULL,
    seq        BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, entity_id, key)
) {clustered};
CREATE INDEX memories_seq ON memories (tenant, seq);

CREATE TABLE goals (
    tenant     TEXT NOT NULL,
    id         TEXT NOT NULL,
    entity_id  TEXT NOT NULL,
    text       TEXT NOT NULL,
    status     TEXT NOT NULL CHECK (status IN ('open', 'done', 'dropped')),
    priority   BIGINT NOT NULL,
    version    BIGINT NOT NULL,
    seq        BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
) {clustered};
CREATE INDEX goals_seq ON goals (tenant, seq);
CREATE INDEX goals_entity ON goals (tenant, entity_id, status);

CREATE TABLE plans (
    tenant     TEXT NOT NULL,
    id         TEXT NOT NULL,
    entity_id  TEXT NOT NULL,
    owner_id   TEXT NOT NULL,
    what       TEXT NOT NULL,
    kind       TEXT NOT NULL CHECK (kind IN ('once', 'after', 'cron')),
    spec       TEXT NOT NULL,
    time_zone  TEXT NOT NULL,
    next_at    BIGINT,
    last_at    BIGINT,
    firings    BIGINT NOT NULL,
    enabled    BOOLEAN NOT NULL,
    version    BIGINT NOT NULL,
    seq        BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
) {clustered};
CREATE INDEX plans_seq ON plans (tenant, seq);
CREATE INDEX plans_entity ON plans (tenant, entity_id);

-- With what a program outside may start an agent. Only a hash of it is kept.
CREATE TABLE service_keys (
    tenant     TEXT NOT NULL,
    id         TEXT NOT NULL,
    agent      TEXT NOT NULL,
    owner_id   TEXT NOT NULL,
    note       TEXT NOT NULL,
    digest     TEXT NOT NULL,
    revoked_at BIGINT,
    version    BIGINT NOT NULL,
    seq        BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
) {clustered};
CREATE INDEX service_keys_seq ON service_keys (tenant, seq);
CREATE INDEX service_keys_agent ON service_keys (tenant, agent);

-- The bookkeeping of a space, not journalled: the last message's number, and a mark that is new whenever its members or their
-- names change. This row is what "the space is locked" means.
CREATE TABLE space_heads (
    tenant   TEXT NOT NULL,
    space_id TEXT NOT NULL,
    pos      BIGINT NOT NULL,
    roster   TEXT NOT NULL,
    PRIMARY KEY (tenant, space_id)
) {clustered};

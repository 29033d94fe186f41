CREATE TABLE notes (
    tenant     TEXT NOT NULL,
    id         TEXT NOT NULL,
    owner_id   TEXT NOT NULL,
    text       TEXT NOT NULL,
    tags       {json} NOT NULL,
    data       {json} NOT NULL,
    done       BOOLEAN NOT NULL,
    version    BIGINT NOT NULL,
    seq        BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
) {clustered};
CREATE INDEX notes_seq ON notes (tenant, seq);

CREATE TABLE entries (
    tenant     TEXT NOT NULL,
    note_id    TEXT NOT NULL,
    pos        BIGINT NOT NULL,
    text       TEXT,
    version    BIGINT NOT NULL,
    seq        BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, note_id, pos)
) {clustered};
CREATE INDEX entries_seq ON entries (tenant, seq);

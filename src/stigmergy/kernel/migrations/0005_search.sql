-- What search keeps beside the breadcrumbs, filled in the background from their rows.

-- Breadcrumbs whose entry is missing or out of date, with the change that made it so.
CREATE TABLE search_stale (
    tenant TEXT NOT NULL,
    id     TEXT NOT NULL,
    seq    BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
) {clustered};

INSERT INTO search_stale (tenant, id, seq) SELECT tenant, id, seq FROM breadcrumbs;

-- How often a tenant's vectors changed: a memory of them is as fresh as the number it has seen.
CREATE TABLE search_heads (
    tenant TEXT NOT NULL PRIMARY KEY,
    stamp  BIGINT NOT NULL
) {clustered};

CREATE TABLE search_vectors (
    tenant TEXT NOT NULL,
    id     TEXT NOT NULL,
    seq    BIGINT NOT NULL,           -- the change of the breadcrumb whose text this is
    stamp  BIGINT NOT NULL,
    model  TEXT NOT NULL,
    vector {vector} NOT NULL,         -- of length 1, 4 bytes a number
    PRIMARY KEY (tenant, id)
);
CREATE INDEX search_vectors_stamp ON search_vectors (tenant, stamp);

-- sqlite:
CREATE TABLE search_entries (
    number INTEGER PRIMARY KEY,       -- the row in search_text
    tenant TEXT NOT NULL,
    id     TEXT NOT NULL,
    UNIQUE (tenant, id)
);
CREATE VIRTUAL TABLE search_text USING fts5 (words, content = '', contentless_delete = 1);
CREATE TRIGGER search_entries_deleted AFTER DELETE ON search_entries BEGIN DELETE FROM search_text WHERE rowid = OLD.number; END;
-- postgres:
CREATE TABLE search_entries (
    tenant TEXT NOT NULL,
    id     TEXT NOT NULL,
    words  TSVECTOR NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX search_entries_words ON search_entries USING gin (words);

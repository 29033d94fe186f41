CREATE TABLE breadcrumbs (
    tenant      TEXT NOT NULL,
    id          TEXT NOT NULL,
    owner_id    TEXT NOT NULL,
    schema_name TEXT NOT NULL,
    title       TEXT NOT NULL,
    description TEXT,
    tags        {json} NOT NULL,
    context     {json} NOT NULL,
    llm_hints   {json},
    audience    TEXT NOT NULL CHECK (audience IN ('public', 'team', 'private')),
    space_id    TEXT,
    expires_at  BIGINT,
    checksum    TEXT NOT NULL,
    created_by  TEXT NOT NULL,
    updated_by  TEXT NOT NULL,
    version     BIGINT NOT NULL,
    seq         BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX breadcrumbs_seq ON breadcrumbs (tenant, seq);
CREATE INDEX breadcrumbs_schema ON breadcrumbs (tenant, schema_name, seq);

-- The current tags of every breadcrumb, newest last. Derived from its rows. The schema is here too, so that a tag's
-- breadcrumbs of one schema are found without a look at each.
CREATE TABLE breadcrumb_tags (
    tenant      TEXT NOT NULL,
    tag         TEXT NOT NULL,
    seq         BIGINT NOT NULL,
    id          TEXT NOT NULL,
    schema_name TEXT NOT NULL,
    PRIMARY KEY (tenant, tag, seq, id)
) {clustered};

CREATE TABLE schemas (
    tenant      TEXT NOT NULL,
    name        TEXT NOT NULL,
    json_schema {json},
    llm_hints   {json},
    ttl_ms      BIGINT,
    version     BIGINT NOT NULL,
    seq         BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    PRIMARY KEY (tenant, name)
);
CREATE INDEX schemas_seq ON schemas (tenant, seq);

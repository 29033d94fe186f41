CREATE TABLE tokens (
    tenant     TEXT NOT NULL,
    id         TEXT NOT NULL,
    entity     TEXT NOT NULL,
    grants     {json} NOT NULL,
    note       TEXT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT,
    version    BIGINT NOT NULL,
    seq        BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX tokens_seq ON tokens (tenant, seq);

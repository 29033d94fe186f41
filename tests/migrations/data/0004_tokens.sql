INSERT INTO tokens (tenant, id, entity, grants, note, expires_at, revoked_at, version, seq, created_at, updated_at) VALUES
    ('fourth', 't1', 'mia', '["read","write"]', '', NULL, NULL, 1, 1, 1700000000000, 1700000000000);
INSERT INTO heads (tenant, seq, rules) VALUES ('fourth', 1, 0);
INSERT INTO changes (tenant, seq, collection, id, version, event, actor, at, cause, depth) VALUES
    ('fourth', 1, 'tokens', 't1', 1, 'create', 'mia', 1700000000000, NULL, 0);

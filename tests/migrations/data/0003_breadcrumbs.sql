INSERT INTO breadcrumbs (tenant, id, owner_id, schema_name, title, description, tags, context, llm_hints, audience, space_id,
                         expires_at, checksum, created_by, updated_by, version, seq, created_at, updated_at) VALUES
    ('third', 'b1', 'mia', 'note.v1', 'Title', NULL, '["a","b"]', '{"n": 1.5}', NULL, 'private', NULL,
     NULL, 'c', 'mia', 'mia', 1, 1, 1700000000000, 1700000000000);
INSERT INTO breadcrumb_tags (tenant, tag, seq, id, schema_name) VALUES
    ('third', 'a', 1, 'b1', 'note.v1'), ('third', 'b', 1, 'b1', 'note.v1');
INSERT INTO schemas (tenant, name, json_schema, llm_hints, ttl_ms, version, seq, created_at, updated_at) VALUES
    ('third', 'note.v1', '{"type": "object"}', NULL, 60000, 1, 2, 1700000000000, 1700000000000);
INSERT INTO heads (tenant, seq, rules) VALUES ('third', 2, 0);
INSERT INTO changes (tenant, seq, collection, id, version, event, actor, at, cause, depth) VALUES
    ('third', 1, 'breadcrumbs', 'b1', 1, 'create', 'mia', 1700000000000, NULL, 0),
    ('third', 2, 'schemas', 'note.v1', 1, 'create', 'mia', 1700000000000, NULL, 0);

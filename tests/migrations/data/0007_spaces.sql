INSERT INTO entities (tenant, id, type, name, agent, version, seq, created_at, updated_at) VALUES
    ('seventh', 'mia', 'human', 'Mia', NULL, 1, 1, 1700000000000, 1700000000000);
INSERT INTO spaces (tenant, id, owner_id, name, about, metadata, version, seq, created_at, updated_at) VALUES
    ('seventh', 's1', 'mia', 'Design', '', '{}', 1, 2, 1700000000000, 1700000000000);
INSERT INTO memberships (tenant, space_id, entity_id, joined_pos, last_processed_message_id, last_processed_pos, version, seq, created_at, updated_at) VALUES
    ('seventh', 's1', 'mia', 0, 'm1', 1, 1, 3, 1700000000000, 1700000000000);
INSERT INTO space_messages (tenant, id, space_id, pos, owner_id, role, author, author_name, content, parts, metadata, mentions, wakes, run_id, reply_to, stream_id, deleted, version, seq, created_at, updated_at) VALUES
    ('seventh', 'm1', 's1', 1, 'mia', 'human', 'mia', 'Mia', 'Hello', NULL, NULL, '["agent:x"]', '[]', NULL, NULL, NULL, FALSE, 1, 4, 1700000000000, 1700000000000);
INSERT INTO clients (tenant, id, entity_id, name, tools, expires_at, version, seq, created_at, updated_at) VALUES
    ('seventh', 'c1', 'mia', 'console', '["show"]', 1700000060000, 1, 5, 1700000000000, 1700000000000);
INSERT INTO memories (tenant, entity_id, key, value, importance, version, seq, created_at, updated_at) VALUES
    ('seventh', 'mia', 'colour', '"green"', 0.5, 1, 6, 1700000000000, 1700000000000);
INSERT INTO goals (tenant, id, entity_id, text, status, priority, version, seq, created_at, updated_at) VALUES
    ('seventh', 'g1', 'mia', 'finish', 'open', 1, 1, 7, 1700000000000, 1700000000000);
INSERT INTO plans (tenant, id, entity_id, owner_id, what, kind, spec, time_zone, next_at, last_at, firings, enabled, version, seq, created_at, updated_at) VALUES
    ('seventh', 'p1', 'agent:x', 'mia', 'look', 'cron', '0 9 * * *', 'Europe/Berlin', 1700000060000, NULL, 0, TRUE, 1, 8, 1700000000000, 1700000000000);
INSERT INTO service_keys (tenant, id, agent, owner_id, note, digest, revoked_at, version, seq, created_at, updated_at) VALUES
    ('seventh', 'k1', 'x', 'mia', 'ci', 'abc', NULL, 1, 9, 1700000000000, 1700000000000);
INSERT INTO space_heads (tenant, space_id, pos, roster) VALUES ('seventh', 's1', 1, 'r1');
INSERT INTO heads (tenant, seq, rules) VALUES ('seventh', 9, 0);
INSERT INTO changes (tenant, seq, collection, id, version, event, actor, at, cause, depth) VALUES
    ('seventh', 1, 'entities', 'mia', 1, 'create', 'mia', 1700000000000, NULL, 0),
    ('seventh', 2, 'spaces', 's1', 1, 'create', 'mia', 1700000000000, NULL, 0),
    ('seventh', 3, 'memberships', 's1/mia', 1, 'create', 'mia', 1700000000000, NULL, 0),
    ('seventh', 4, 'space_messages', 'm1', 1, 'create', 'mia', 1700000000000, NULL, 0),
    ('seventh', 5, 'clients', 'c1', 1, 'create', 'mia', 1700000000000, NULL, 0),
    ('seventh', 6, 'memories', 'mia/colour', 1, 'create', 'mia', 1700000000000, NULL, 0),
    ('seventh', 7, 'goals', 'g1', 1, 'create', 'mia', 1700000000000, NULL, 0),
    ('seventh', 8, 'plans', 'p1', 1, 'create', 'mia', 1700000000000, NULL, 0),
    ('seventh', 9, 'service_keys', 'k1', 1, 'create', 'mia', 1700000000000, NULL, 0);

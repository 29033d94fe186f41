INSERT INTO run_messages (tenant, run_id, pos, owner_id, space_id, step, role, content, parts, tool_call_id, name, token_count, stream_id, model, prompt, usage, kept, version, seq, created_at, updated_at) VALUES
    ('sixth', 'r1', 3, 'mia', 's1', 1, 'assistant', '', NULL, NULL, NULL, 1, NULL, NULL, NULL, NULL, '{"calls":1}', 1, 10, 1700000000000, 1700000000000);
INSERT INTO changes (tenant, seq, collection, id, version, event, actor, at, cause, depth) VALUES
    ('sixth', 10, 'run_messages', 'r1/3', 1, 'create', 'mia', 1700000000000, NULL, 0);
UPDATE heads SET seq = 10 WHERE tenant = 'sixth';

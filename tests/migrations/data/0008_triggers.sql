INSERT INTO deliveries (tenant, id, trigger_id, trigger_version, kind, lane, queue, collection, document_id, document_version, event, change_seq, actor, at, cause, depth, status, tries, answer, settled_at, version, seq, created_at, updated_at) VALUES
    ('eighth', 'd1', 'on-new-task', 1, 'webhook', 'on-new-task tasks/k1', 'webhooks', 'tasks', 'k1', 1, 'create', 1, 'mia', 1700000000000, NULL, 0, 'pending', 0, NULL, NULL, 1, 2, 1700000000000, 1700000000000),
    ('eighth', 'd2', 'on-new-task', 1, 'webhook', 'on-new-task tasks/k2', 'webhooks', 'tasks', 'k2', 1, 'create', 3, 'mia', 1700000000000, NULL, 0, 'dead', 8, '{"status":500}', 1700000000000, 1, 4, 1700000000000, 1700000000000);
INSERT INTO delivery_tries (tenant, delivery_id, tries, next_at, answer) VALUES ('eighth', 'd1', 2, 1700000001000, '{"error":"no answer"}');
INSERT INTO delivery_limits (queue, base, concurrency, spacing_us, next_us) VALUES ('webhooks/eighth/slow', 'webhooks', 2, 100000, 1700000000000000);
INSERT INTO heads (tenant, seq, rules) VALUES ('eighth', 4, 0);

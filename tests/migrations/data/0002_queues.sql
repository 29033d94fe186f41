INSERT INTO workers (id, counter, alive, started_at, describes) VALUES
    ('w1', 7, TRUE, 1700000000000, 'one'), ('w2', 0, FALSE, 1700000000000, '');
INSERT INTO ready (queue, tenant, id, due_at, worker, fence) VALUES
    ('runs', 'main', 'r1', 1700000000000, 'w1', 3), ('runs', 'acme', 'r2', 1700000000000, NULL, 0);
INSERT INTO timers (tenant, kind, id, due_at) VALUES ('main', 'bell', 't1', 1700000000000), ('acme', 'bell', 't1', 4000000000000);
INSERT INTO idempotency (tenant, actor, route, key, request, answer, created_at) VALUES
    ('main', 'mia', 'POST /notes', 'k', CAST('request' AS {blob}), CAST('' AS {blob}), 1700000000000);
INSERT INTO blocks (tenant, hash, size, media_type, body, created_at) VALUES
    ('main', '2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae', 3, 'text/plain', CAST('foo' AS {blob}), 1700000000000),
    ('main', 'fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9', 3, 'text/plain', NULL, 1700000000000);
INSERT INTO followers (tenant, name, cursor, max_lag, seen_at) VALUES ('main', 'mirror', 3, 1000, 1700000000000);
INSERT INTO pins (tenant, collection, id, version, holder) VALUES ('main', 'rules', 'kept', 1, 'run');

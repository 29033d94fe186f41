-- A rule made, changed and still there; another made and deleted; a diagnostic; two tenants.
INSERT INTO heads (tenant, seq, rules) VALUES ('main', 5, 4), ('acme', 1, 0);
INSERT INTO changes (tenant, seq, collection, id, version, event, actor, at, cause, depth) VALUES
    ('main', 1, 'rules', 'kept', 1, 'create', 'mia', 1700000000001, NULL, 0),
    ('main', 2, 'rules', 'kept', 2, 'update', 'mia', 1700000000002, 1, 1),
    ('main', 3, 'rules', 'gone', 1, 'create', 'mia', 1700000000003, NULL, 0),
    ('main', 4, 'rules', 'gone', 2, 'delete', 'tom', 1700000000004, NULL, 0),
    ('main', 5, 'diagnostics', 'd', 1, 'create', 'mia', 1700000000005, 2, 2),
    ('acme', 1, 'diagnostics', 'd', 1, 'create', 'system', 1700000000006, NULL, 0);
INSERT INTO versions (tenant, collection, id, version, seq, body) VALUES
    ('main', 'rules', 'kept', 1, 1, CAST('{"tenant":"main","version":1,"seq":1,"created_at":1700000000001,"updated_at":1700000000001,"id":"kept","owner":"code","kind":"test","collection":"notes","events":["create"],"action":{},"enabled":false}' AS {blob})),
    ('main', 'rules', 'gone', 1, 3, NULL);
INSERT INTO tombstones (tenant, collection, id, version, seq) VALUES ('main', 'rules', 'gone', 2, 4);
INSERT INTO rules (tenant, id, owner, kind, collection, events, selector, condition, action, position, max_depth, enabled,
                   version, seq, created_at, updated_at) VALUES
    ('main', 'kept', 'code', 'test', 'notes', '["create"]', NULL, NULL, '{"url": "é"}', 3, 32, FALSE, 2, 2, 1700000000001, 1700000000002);
INSERT INTO diagnostics (tenant, id, kind, rule, message, change_seq, version, seq, created_at, updated_at) VALUES
    ('main', 'd', 'bad_rule', 'kept', 'it''s bad; -- really', 2, 1, 5, 1700000000005, 1700000000005),
    ('acme', 'd', 'bad_rule', NULL, '', 1, 1, 1, 1700000000006, 1700000000006);

INSERT INTO agents (tenant, name, owner, definition, queue, enabled, version, seq, created_at, updated_at) VALUES
    ('sixth', 'researcher', 'app', '{"name":"researcher","model":"scripted:x"}', 'runs', TRUE, 1, 1, 1700000000000, 1700000000000);
INSERT INTO tasks (tenant, id, owner_id, space_id, type, name, instruction, run_id, trigger_message_id, parent_run_id, tool_call_id, executor, status, result, error, completions, version, seq, created_at, updated_at) VALUES
    ('sixth', 'k1', 'mia', 's1', 'agent', 'agent:researcher', 'look', 'r1', NULL, NULL, NULL, 'engine', 'running', NULL, NULL, 0, 1, 2, 1700000000000, 1700000000000);
INSERT INTO runs (tenant, id, owner_id, space_id, agent, agent_version, agent_shared, entity_id, task_id, parent_run_id, root_id, nesting, depth, cause, cause_key, executor, status, step, max_steps, active_space_id, assembly, metadata, tokens_used, cost, deadline, attempts, result, error, started_at, ended_at, version, seq, created_at, updated_at) VALUES
    ('sixth', 'r1', 'mia', 's1', 'researcher', 1, FALSE, 'agent:researcher', 'k1', NULL, 'r1', 0, 0, '{"kind":"api"}', NULL, 'engine', 'waiting_reply', 1, 10, NULL, NULL, '{}', 12, NULL, 1700001800000, 1, NULL, NULL, 1700000000000, NULL, 1, 3, 1700000000000, 1700000000000);
INSERT INTO run_messages (tenant, run_id, pos, owner_id, space_id, step, role, content, parts, tool_call_id, name, token_count, stream_id, model, prompt, usage, version, seq, created_at, updated_at) VALUES
    ('sixth', 'r1', 1, 'mia', 's1', 0, 'user', 'look', NULL, NULL, NULL, 1, NULL, NULL, NULL, NULL, 1, 4, 1700000000000, 1700000000000);
INSERT INTO run_thoughts (tenant, run_id, pos, step, type, content, reasoning, confidence, alternatives, parent_id, metadata, version, seq, created_at, updated_at) VALUES
    ('sixth', 'r1', 2, 1, 'reasoning', 'hm', NULL, 0.5, NULL, NULL, NULL, 1, 5, 1700000000000, 1700000000000);
INSERT INTO run_tool_calls (tenant, run_id, id, owner_id, space_id, opened_pos, settled_pos, step, tool_name, args, execution_type, visibility, status, result, error, duration_ms, attempts, version, seq, created_at, updated_at) VALUES
    ('sixth', 'r1', 'c1', 'mia', 's1', 4, NULL, 1, 'ask_user', '{"question":"?"}', 'internal', 'hidden', 'running', NULL, NULL, NULL, 1, 1, 6, 1700000000000, 1700000000000);
INSERT INTO run_variables (tenant, run_id, pos, step, key, value, removed, version, seq, created_at, updated_at) VALUES
    ('sixth', 'r1', 5, 1, 'found', '[1]', FALSE, 1, 7, 1700000000000, 1700000000000);
INSERT INTO run_checkpoints (tenant, id, run_id, pos, step, reason, tokens_used, duration_ms, name, description, parent_id, is_branch, branch_reason, version, seq, created_at, updated_at) VALUES
    ('sixth', 'p1', 'r1', 5, 1, 'step_complete', 12, 30, NULL, NULL, NULL, FALSE, NULL, 1, 8, 1700000000000, 1700000000000);
INSERT INTO waits (tenant, run_id, call_id, party, id, kind, party_name, party_type, for_entity, space_id, message_id, question, details, status, deadline, answer, answered_by, answered_at, version, seq, created_at, updated_at) VALUES
    ('sixth', 'r1', 'c1', 'mia', 'w1', 'reply', 'Mia', 'human', 'mia', 's1', 'm1', '?', NULL, 'open', 1700000300000, NULL, NULL, NULL, 1, 9, 1700000000000, 1700000000000);
INSERT INTO run_heads (tenant, run_id, pos, agent, queue, active, parked) VALUES ('sixth', 'r1', 5, 'researcher', 'runs', FALSE, FALSE);
INSERT INTO heads (tenant, seq, rules) VALUES ('sixth', 9, 0);
INSERT INTO changes (tenant, seq, collection, id, version, event, actor, at, cause, depth) VALUES
    ('sixth', 1, 'agents', 'researcher', 1, 'create', 'mia', 1700000000000, NULL, 0),
    ('sixth', 2, 'tasks', 'k1', 1, 'create', 'mia', 1700000000000, NULL, 0),
    ('sixth', 3, 'runs', 'r1', 1, 'create', 'mia', 1700000000000, NULL, 0),
    ('sixth', 4, 'run_messages', 'r1/1', 1, 'create', 'mia', 1700000000000, NULL, 0),
    ('sixth', 5, 'run_thoughts', 'r1/2', 1, 'create', 'mia', 1700000000000, NULL, 0),
    ('sixth', 6, 'run_tool_calls', 'r1/c1', 1, 'create', 'mia', 1700000000000, NULL, 0),
    ('sixth', 7, 'run_variables', 'r1/5', 1, 'create', 'mia', 1700000000000, NULL, 0),
    ('sixth', 8, 'run_checkpoints', 'p1', 1, 'create', 'mia', 1700000000000, NULL, 0),
    ('sixth', 9, 'waits', 'r1/c1/mia', 1, 'create', 'mia', 1700000000000, NULL, 0);

-- What a provider wants to see again with an assistant's message, and a message's calls in the shape that other programs know.
ALTER TABLE run_messages ADD COLUMN kept {json};

DROP VIEW sub_agent_messages;
-- sqlite:
CREATE VIEW sub_agent_messages AS
    SELECT tenant, run_id || '/' || CAST(pos AS TEXT) AS id, owner_id AS user_id, run_id AS sub_agent_id, role, content,
           tool_call_id,
           CASE WHEN role = 'assistant' THEN (
               SELECT json_group_array(json_object('id', c.id, 'type', 'function', 'function', json_object(
                          'name', c.tool_name,
                          'arguments', CASE json_type(c.args) WHEN 'text' THEN json_extract(c.args, '$') ELSE c.args END)))
               FROM (SELECT id, tool_name, args FROM run_tool_calls
                     WHERE tenant = run_messages.tenant AND run_id = run_messages.run_id AND step = run_messages.step
                     ORDER BY opened_pos) AS c HAVING count(*) > 0)
           END AS tool_calls,
           name, created_at FROM run_messages;
-- postgres:
CREATE VIEW sub_agent_messages WITH (security_invoker = true) AS
    SELECT tenant, run_id || '/' || CAST(pos AS TEXT) AS id, owner_id AS user_id, run_id AS sub_agent_id, role, content,
           tool_call_id,
           CASE WHEN role = 'assistant' THEN (
               SELECT json_agg(json_build_object('id', c.id, 'type', 'function', 'function', json_build_object(
                          'name', c.tool_name,
                          'arguments', CASE json_typeof(c.args) WHEN 'string' THEN c.args #>> '{}' ELSE CAST(c.args AS TEXT) END))
                      ORDER BY c.opened_pos)
               FROM run_tool_calls AS c
               WHERE c.tenant = run_messages.tenant AND c.run_id = run_messages.run_id AND c.step = run_messages.step)
           END AS tool_calls,
           name, created_at FROM run_messages;

-- Agents, runs and their logs.
CREATE TABLE agents (
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    owner      TEXT NOT NULL,
    definition {json} NOT NULL,
    queue      TEXT NOT NULL,
    enabled    BOOLEAN NOT NULL,
    version    BIGINT NOT NULL,
    seq        BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, name)
) {clustered};
CREATE INDEX agents_seq ON agents (tenant, seq);

CREATE TABLE tasks (
    tenant             TEXT NOT NULL,
    id                 TEXT NOT NULL,
    owner_id           TEXT NOT NULL,
    space_id           TEXT NOT NULL,
    type               TEXT NOT NULL CHECK (type IN ('agent', 'tool')),
    name               TEXT NOT NULL,
    instruction        TEXT NOT NULL,
    run_id             TEXT,
    trigger_message_id TEXT,
    parent_run_id      TEXT,
    tool_call_id       TEXT,
    executor           TEXT NOT NULL CHECK (executor IN ('engine', 'external')),
    status             TEXT NOT NULL CHECK (status IN ('pending', 'running', 'waiting', 'success', 'failed')),
    result             {json},
    error              TEXT,
    completions        BIGINT NOT NULL,
    version            BIGINT NOT NULL,
    seq                BIGINT NOT NULL,
    created_at         BIGINT NOT NULL,
    updated_at         BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX tasks_seq ON tasks (tenant, seq);
CREATE INDEX tasks_owner ON tasks (tenant, owner_id, created_at);
CREATE INDEX tasks_space ON tasks (tenant, space_id, created_at);
CREATE INDEX tasks_trigger_message ON tasks (tenant, trigger_message_id) WHERE trigger_message_id IS NOT NULL;
CREATE INDEX tasks_parent_run ON tasks (tenant, parent_run_id) WHERE parent_run_id IS NOT NULL;

CREATE TABLE runs (
    tenant          TEXT NOT NULL,
    id              TEXT NOT NULL,
    owner_id        TEXT NOT NULL,
    space_id        TEXT NOT NULL,
    agent           TEXT NOT NULL,
    agent_version   BIGINT NOT NULL,
    agent_shared    BOOLEAN NOT NULL,           -- the definition is the program's, for all tenants
    entity_id       TEXT NOT NULL,
    task_id         TEXT,
    parent_run_id   TEXT,
    root_id         TEXT NOT NULL,
    nesting         BIGINT NOT NULL,
    depth           BIGINT NOT NULL,           -- of the chain of causes that it is a part of
    cause           {json} NOT NULL,
    cause_key       TEXT,
    executor        TEXT NOT NULL CHECK (executor IN ('engine', 'external')),
    status          TEXT NOT NULL CHECK (status IN ('queued', 'running', 'waiting_tool', 'waiting_reply', 'completed', 'failed', 'canceled')),
    step            BIGINT NOT NULL,
    max_steps       BIGINT NOT NULL,
    active_space_id TEXT,
    assembly        TEXT,
    metadata        {json} NOT NULL,
    tokens_used     BIGINT NOT NULL,
    cost            DOUBLE PRECISION,
    deadline        BIGINT NOT NULL,
    attempts        BIGINT NOT NULL,
    result          {json},
    error           TEXT,
    started_at      BIGINT,
    ended_at        BIGINT,
    version         BIGINT NOT NULL,
    seq             BIGINT NOT NULL,
    created_at      BIGINT NOT NULL,
    updated_at      BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX runs_seq ON runs (tenant, seq);
CREATE INDEX runs_owner ON runs (tenant, owner_id, created_at);
CREATE INDEX runs_task ON runs (tenant, task_id) WHERE task_id IS NOT NULL;
CREATE INDEX runs_root ON runs (tenant, root_id, nesting);
CREATE INDEX runs_space ON runs (tenant, space_id);
CREATE INDEX runs_agent ON runs (tenant, agent, status);
CREATE UNIQUE INDEX runs_cause ON runs (tenant, cause_key) WHERE cause_key IS NOT NULL;

CREATE TABLE run_messages (
    tenant       TEXT NOT NULL,
    run_id       TEXT NOT NULL,
    pos          BIGINT NOT NULL,
    owner_id     TEXT NOT NULL,
    space_id     TEXT NOT NULL,
    step         BIGINT NOT NULL,
    role         TEXT NOT NULL CHECK (role IN ('system', 'user', 'assistant', 'tool')),
    content      TEXT NOT NULL,
    parts        {json},
    tool_call_id TEXT,
    name         TEXT,
    token_count  BIGINT NOT NULL,
    stream_id    TEXT,
    model        TEXT,
    prompt       {json},
    usage        {json},
    version      BIGINT NOT NULL,
    seq          BIGINT NOT NULL,
    created_at   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    PRIMARY KEY (tenant, run_id, pos)
) {clustered};
CREATE INDEX run_messages_seq ON run_messages (tenant, seq);
CREATE INDEX run_messages_owner ON run_messages (tenant, owner_id, created_at);

CREATE TABLE run_tool_calls (
    tenant         TEXT NOT NULL,
    run_id         TEXT NOT NULL,
    id             TEXT NOT NULL,
    owner_id       TEXT NOT NULL,
    space_id       TEXT NOT NULL,
    opened_pos     BIGINT NOT NULL,
    settled_pos    BIGINT,
    step           BIGINT NOT NULL,
    tool_name      TEXT NOT NULL,
    args           {json} NOT NULL,
    execution_type TEXT NOT NULL,
    visibility     TEXT NOT NULL,
    status         TEXT NOT NULL CHECK (status IN ('pending', 'running', 'success', 'failed', 'canceled')),
    result         {json},
    error          TEXT,
    duration_ms    BIGINT,
    attempts       BIGINT NOT NULL,
    version        BIGINT NOT NULL,
    seq            BIGINT NOT NULL,
    created_at     BIGINT NOT NULL,
    updated_at     BIGINT NOT NULL,
    PRIMARY KEY (tenant, run_id, id)
) {clustered};
CREATE INDEX run_tool_calls_seq ON run_tool_calls (tenant, seq);
CREATE INDEX run_tool_calls_step ON run_tool_calls (tenant, run_id, step);
CREATE INDEX run_tool_calls_owner ON run_tool_calls (tenant, owner_id);

CREATE TABLE run_thoughts (
    tenant       TEXT NOT NULL,
    run_id       TEXT NOT NULL,
    pos          BIGINT NOT NULL,
    step         BIGINT NOT NULL,
    type         TEXT NOT NULL,
    content      TEXT NOT NULL,
    reasoning    TEXT,
    confidence   DOUBLE PRECISION,
    alternatives {json},
    parent_id    TEXT,
    metadata     {json},
    version      BIGINT NOT NULL,
    seq          BIGINT NOT NULL,
    created_at   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    PRIMARY KEY (tenant, run_id, pos)
) {clustered};
CREATE INDEX run_thoughts_seq ON run_thoughts (tenant, seq);

CREATE TABLE run_variables (
    tenant     TEXT NOT NULL,
    run_id     TEXT NOT NULL,
    pos        BIGINT NOT NULL,
    step       BIGINT NOT NULL,
    key        TEXT NOT NULL,
    value      {json},
    removed    BOOLEAN NOT NULL,
    version    BIGINT NOT NULL,
    seq        BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, run_id, pos)
) {clustered};
CREATE INDEX run_variables_seq ON run_variables (tenant, seq);
CREATE INDEX run_variables_key ON run_variables (tenant, run_id, key, pos);

CREATE TABLE run_checkpoints (
    tenant        TEXT NOT NULL,
    id            TEXT NOT NULL,
    run_id        TEXT NOT NULL,
    pos           BIGINT NOT NULL,
    step          BIGINT NOT NULL,
    reason        TEXT NOT NULL CHECK (reason IN ('step_complete', 'manual', 'low_confidence', 'tool_error', 'auto')),
    tokens_used   BIGINT NOT NULL,
    duration_ms   BIGINT NOT NULL,
    name          TEXT,
    description   TEXT,
    parent_id     TEXT,
    is_branch     BOOLEAN NOT NULL,
    branch_reason TEXT,
    version       BIGINT NOT NULL,
    seq           BIGINT NOT NULL,
    created_at    BIGINT NOT NULL,
    updated_at    BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX run_checkpoints_seq ON run_checkpoints (tenant, seq);
CREATE INDEX run_checkpoints_run ON run_checkpoints (tenant, run_id, pos);

CREATE TABLE waits (
    tenant      TEXT NOT NULL,
    run_id      TEXT NOT NULL,
    call_id     TEXT NOT NULL,
    party       TEXT NOT NULL,
    id          TEXT NOT NULL,
    kind        TEXT NOT NULL CHECK (kind IN ('reply', 'tool', 'approval', 'child')),
    party_name  TEXT NOT NULL,
    party_type  TEXT NOT NULL,
    for_entity  TEXT,
    space_id    TEXT,
    message_id  TEXT,
    question    TEXT,
    details     {json},
    status      TEXT NOT NULL CHECK (status IN ('open', 'answered', 'expired', 'canceled')),
    deadline    BIGINT NOT NULL,
    answer      {json},
    answered_by TEXT,
    answered_at BIGINT,
    version     BIGINT NOT NULL,
    seq         BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    PRIMARY KEY (tenant, run_id, call_id, party)
) {clustered};
CREATE INDEX waits_seq ON waits (tenant, seq);
CREATE INDEX waits_party ON waits (tenant, party, space_id) WHERE status = 'open';
CREATE INDEX waits_open ON waits (tenant, seq) WHERE status = 'open';
CREATE INDEX waits_inbox ON waits (tenant, for_entity, kind) WHERE status = 'open';
CREATE UNIQUE INDEX waits_id ON waits (tenant, id);

-- The engine's bookkeeping beside a run, not journalled: the last position of its log, and whether a worker has it in hand.
CREATE TABLE run_heads (
    tenant TEXT NOT NULL,
    run_id TEXT NOT NULL,
    pos    BIGINT NOT NULL,
    agent  TEXT NOT NULL,
    queue  TEXT NOT NULL,
    active BOOLEAN NOT NULL,          -- counts against what the agent may do at once
    parked BOOLEAN NOT NULL,          -- waits for another run of its agent to make room
    PRIMARY KEY (tenant, run_id)
) {clustered};
CREATE INDEX run_heads_active ON run_heads (tenant, agent) WHERE active;
CREATE INDEX run_heads_parked ON run_heads (tenant, agent, run_id) WHERE parked;

-- The same rows under the names and columns that other programs know.
CREATE VIEW sub_agents {invoker} AS
    SELECT tenant, id, owner_id AS user_id, space_id AS chat_id, task_id, agent AS role,
           CASE WHEN status IN ('queued', 'running', 'waiting_tool') THEN 'active'
                WHEN status = 'waiting_reply' THEN 'waiting_for_user'
                WHEN status = 'completed' THEN 'completed' ELSE 'failed' END AS status,
           step AS iteration_count, created_at, updated_at FROM runs;
CREATE VIEW sub_agent_messages {invoker} AS
    SELECT tenant, run_id || '/' || CAST(pos AS TEXT) AS id, owner_id AS user_id, run_id AS sub_agent_id, role, content,
           tool_call_id, name, created_at FROM run_messages;
CREATE VIEW sub_agent_tool_calls {invoker} AS
    SELECT tenant, id, owner_id AS user_id, run_id AS sub_agent_id, tool_name, args,
           CASE WHEN status = 'running' THEN 'pending' WHEN status = 'canceled' THEN 'failed' ELSE status END AS status,
           result, error, created_at FROM run_tool_calls;

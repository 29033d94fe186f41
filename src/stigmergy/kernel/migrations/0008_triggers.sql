-- What triggers set off: one delivery for each trigger and change, and the bookkeeping of handing it over.

CREATE TABLE deliveries (
    tenant           TEXT NOT NULL,
    id               TEXT NOT NULL,
    trigger_id       TEXT NOT NULL,
    trigger_version  BIGINT NOT NULL,
    kind             TEXT NOT NULL,
    lane             TEXT NOT NULL,   -- the trigger and the document: what is handed over in order
    queue            TEXT NOT NULL,   -- of `ready`, in which its lane waits
    collection       TEXT NOT NULL,
    document_id      TEXT NOT NULL,
    document_version BIGINT NOT NULL,
    event            TEXT NOT NULL,
    change_seq       BIGINT NOT NULL,
    actor            TEXT NOT NULL,   -- who made the change, when and why: the journal may have dropped it
    at               BIGINT NOT NULL,
    cause            BIGINT,
    depth            BIGINT NOT NULL,
    status           TEXT NOT NULL CHECK (status IN ('pending', 'delivered', 'dead', 'discarded')),
    tries            BIGINT NOT NULL,
    answer           {json},
    settled_at       BIGINT,
    version          BIGINT NOT NULL,
    seq              BIGINT NOT NULL,
    created_at       BIGINT NOT NULL,
    updated_at       BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE UNIQUE INDEX deliveries_once ON deliveries (tenant, trigger_id, change_seq);
CREATE INDEX deliveries_seq ON deliveries (tenant, seq);
CREATE INDEX deliveries_lane ON deliveries (tenant, lane, change_seq) WHERE status = 'pending';
CREATE INDEX deliveries_dead ON deliveries (tenant, id) WHERE status = 'dead';

-- Of a delivery that has failed and will be tried again: how often, when next, and what the last answer was.
CREATE TABLE delivery_tries (
    tenant      TEXT NOT NULL,
    delivery_id TEXT NOT NULL,
    tries       BIGINT NOT NULL,
    next_at     BIGINT NOT NULL,
    answer      {json},
    PRIMARY KEY (tenant, delivery_id)
) {clustered};

-- Queues of triggers that have limits.
CREATE TABLE delivery_limits (
    queue       TEXT NOT NULL PRIMARY KEY,
    base        TEXT NOT NULL,        -- the queue that it would be without limits
    concurrency BIGINT,               -- how many may be on their way at once
    spacing_us  BIGINT,               -- microseconds between the starts of two
    next_us     BIGINT NOT NULL       -- when the next may start
) {clustered};
CREATE INDEX delivery_limits_base ON delivery_limits (base);

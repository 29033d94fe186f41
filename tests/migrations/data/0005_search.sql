INSERT INTO search_stale (tenant, id, seq) VALUES ('fifth', 'b2', 2);
INSERT INTO search_heads (tenant, stamp) VALUES ('fifth', 1);
INSERT INTO search_vectors (tenant, id, seq, stamp, model, vector) VALUES ('fifth', 'b1', 1, 1, 'old', CAST('{1,0}' AS {vector}));
-- sqlite:
INSERT INTO search_entries (number, tenant, id) VALUES (1, 'fifth', 'b1');
INSERT INTO search_text (rowid, words) VALUES (1, 'axhello');
-- postgres:
INSERT INTO search_entries (tenant, id, words) VALUES ('fifth', 'b1', to_tsvector('simple', 'axhello'));

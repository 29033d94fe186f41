"""What PostgreSQL has for search: tsvector with ts_rank_cd, and pgvector where the extension is installed.

ts_rank_cd is a cover density, not BM25: near and frequent words count, rare words do not count more. Vectors are compared
exactly: within one tenant that is quick enough, and it is right under every filter and under row-level security.
"""

from stigmergy.kernel.query import Statement

# Every record that has a word is scored, so no word is too frequent.
COUNT = "SELECT value, 0 FROM {each:words} LIMIT :bound"

MATCH = """SELECT e.id, CAST(ts_rank_cd(e.words, wanted.query) AS DOUBLE PRECISION) AS score
           FROM search_entries e,
                (SELECT to_tsquery('simple', string_agg('''' || value || '''', ' | ')) AS query FROM {each:words}) wanted
           WHERE e.tenant = :tenant AND e.words @@ wanted.query
             AND (CAST(:ids AS JSON) IS NULL OR e.id IN (SELECT value FROM {each:ids}))
           ORDER BY score DESC, e.id DESC LIMIT :many"""

ENGINE = "SELECT CASE WHEN EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'vector') THEN 'pgvector' ELSE 'postgres' END"

# Both are of length 1, so that the product is the cosine; `<#>` is its negative.
NEAREST = Statement(
    "search_vectors.nearest",
    """SELECT id, -(CAST(vector AS VECTOR) <#> CAST(CAST(:wanted AS REAL[]) AS VECTOR)) AS score
       FROM search_vectors
       WHERE tenant = :tenant AND model = :model AND (CAST(:ids AS JSON) IS NULL OR id IN (SELECT value FROM {each:ids}))
       ORDER BY score DESC, id DESC LIMIT :many""",
)

ADD = (
    Statement(
        "search_entries.add",
        """INSERT INTO search_entries (tenant, id, words)
           VALUES (:tenant, :id, to_tsvector('simple', CAST(:words AS TEXT)))""",
    ),
)

"""What SQLite has for search: FTS5 and its BM25.

FTS5 is one index for the file, so a word is stored with its tenant before it (`search_index.words_of`): how often another
tenant has a word is neither counted nor waited for. bm25() visits every record that has one of the words; it is asked for the
newest `SCORED` of them at the most, and `search` leaves out words that too many records have while rarer ones find enough.
"""

from stigmergy.kernel.query import Statement

# Records that bm25() is worked out for at the most.
SCORED = 5_000

COUNT = """SELECT value, (SELECT count(*) FROM
           (SELECT 1 FROM search_text WHERE search_text MATCH '"' || value || '"' LIMIT :bound)) FROM {each:words}"""

# The outer loop is over the words' records (CROSS JOIN), newest first, so that the bound holds. Which of them are among the ids
# is seen by their numbers, before anything of them is read; without the `+` the words would be looked up for each number anew.
MATCH = f"""SELECT id, -score FROM (
                SELECT e.id AS id, e.number AS number, bm25(search_text) AS score
                FROM search_text CROSS JOIN search_entries e ON e.number = search_text.rowid
                WHERE search_text MATCH (SELECT group_concat('"' || value || '"', ' OR ') FROM {{each:words}})
                  AND e.tenant = :tenant
                  AND (:ids IS NULL OR +search_text.rowid IN (
                      SELECT number FROM search_entries WHERE tenant = :tenant AND id IN (SELECT value FROM {{each:ids}})))
                ORDER BY search_text.rowid DESC LIMIT {SCORED})
            ORDER BY score, number DESC LIMIT :many"""

ENGINE = "SELECT 'sqlite'"

ADD = (
    Statement("search_entries.add", "INSERT INTO search_entries (tenant, id) VALUES (:tenant, :id)"),
    Statement(
        "search_text.add",
        """INSERT INTO search_text (rowid, words)
           SELECT number, :words FROM search_entries WHERE tenant = :tenant AND id = :id""",
    ),
)

"""How facts are stored and heard; knows no domain.

Every durable change of a record is written by a unit of work (`database.py`), numbered in the journal (`journal.py`) and
matched against the rules (`matching.py`) in one transaction. The parts above declare records and compose units; no
other code changes a row.
"""

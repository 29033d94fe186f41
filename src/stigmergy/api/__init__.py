"""HTTP in, commands out: no SQL and no rules in here. Only the parts' commands and queries are called."""

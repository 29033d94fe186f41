"""The loop that makes runs go: read rows, think with no transaction open, write everything in one. Between steps nothing that
matters is in memory."""

"""Triggers: "when this kind of write happens, do that". Webhooks, Python handlers, and whatever other parts can start.

A trigger is a rule of the kernel, matched in the writing transaction; a webhook or a handler that fires is one delivery, a
record that was committed with the change. From there on it is handed over at least once, in order per document and trigger.
"""

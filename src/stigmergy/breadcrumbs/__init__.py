"""Breadcrumbs: small, versioned, typed packets of context; what models see of them; what is gathered for a trigger.

Agents are data and subscriptions. The feed says that something changed, the store has it, and context is fetched when a
trigger fires.
"""

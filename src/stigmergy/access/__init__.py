"""Who may come in: signed tokens that name a tenant, an entity and grants."""

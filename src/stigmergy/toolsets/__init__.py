"""Tools that are ready to be given to agents, each usable alone: they need a store, and no engine."""

"""Models: the port that thinks for an agent, and what stands behind it. `resolve` gives the one that a name means."""

"""Runs: tasks, the lives of agents, their tool calls and waits, as rows. What makes them go is `engine`."""

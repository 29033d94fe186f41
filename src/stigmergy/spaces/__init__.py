"""Humans and agents in one conversation: who is there, what is said, who is woken by it, who has seen what."""

"""Humans and agents in one conversation: who is there, what is said, who is woken by it, who has seen what.

What a message and the end of a run set off is written with their changes; so whoever uses any of this has all of it.
"""

from stigmergy.spaces import ending, visibility, waking

__all__ = ["ending", "visibility", "waking"]

"""Stigmergy: a state and run engine for LLM agents. Agents, tools and people write facts to one store; facts wake them."""

from stigmergy.app import App

__all__ = ["App"]

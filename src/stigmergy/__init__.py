"""Stigmergy: a state and run engine for LLM agents. Agents, tools and people write facts to one store; facts wake them."""

from stigmergy.agents.agent import Agent, Hooks, latest, nearest, on, recent
from stigmergy.agents.model import Approval
from stigmergy.agents.models.port import Asked, Reply, Request, Thinking
from stigmergy.agents.models.scripted import ScriptedModel
from stigmergy.agents.tools import Tool, ToolContext, tool
from stigmergy.app import App
from stigmergy.engine.hooks import AskFirst, Refuse

__all__ = [
    "Agent",
    "App",
    "Approval",
    "AskFirst",
    "Asked",
    "Hooks",
    "Refuse",
    "Reply",
    "Request",
    "ScriptedModel",
    "Thinking",
    "Tool",
    "ToolContext",
    "latest",
    "nearest",
    "on",
    "recent",
    "tool",
]

"""What of a program's agents is code, and so is in this process alone: functions by name and shape, models, hooks, types."""

from collections.abc import Iterable
from typing import Any

from stigmergy.agents.agent import Agent, Hooks
from stigmergy.agents.model import ANYWHERE, Definition, ToolSpec, queue_of
from stigmergy.agents.models.port import Model
from stigmergy.agents.tools import Tool
from stigmergy.engine.direct import DIRECT


class Code:
    """The program's own. A worker claims only runs whose needs are met here."""

    def __init__(self, agents: Iterable[Agent] = (), hooks: Hooks | None = None, tools: Iterable[Tool] = ()) -> None:
        self._alone = {tool.spec.name: tool for tool in tools}
        self.tools: dict[str, Tool] = {}
        self.models: dict[str, Model] = {}
        self.output_types: dict[str, Any] = {}
        self.agents: dict[str, Agent] = {}
        self.hooks = hooks or Hooks()
        self.tools |= {tool.spec.shape: tool for tool in self._alone.values()}
        for agent in agents:
            self.add(agent)

    def add(self, agent: Agent) -> None:
        """An agent, and those it delegates to."""
        if agent.name in self.agents:
            return
        self.agents[agent.name] = agent
        for tool in agent.tools.values():
            self.tools[tool.spec.shape] = tool
        if agent.model is not None:
            self.models[agent.definition.model] = agent.model
        if agent.output_type is not None:
            self.output_types[agent.name] = agent.output_type
        for delegate in agent.delegates:
            if isinstance(delegate, Agent):
                self.add(delegate)

    def definitions(self) -> list[Definition]:
        """What is to be stored: the agents, and each of their tools as something that a task can name."""
        tools: dict[str, ToolSpec] = {name: tool.spec for name, tool in self._alone.items()}
        for agent in self.agents.values():
            tools |= {tool.name: tool for tool in agent.definition.tools}
        alone = [tool_agent(tool) for tool in tools.values()]
        return [*(agent.definition for agent in self.agents.values()), *alone]

    def hooks_of(self, agent: str) -> Hooks:
        own = self.agents[agent].hooks if agent in self.agents else Hooks()
        return self.hooks + own

    @property
    def offers(self) -> frozenset[str]:
        models = (f"model:{name}" for name in self.models)
        hooked = (f"hooks:{name}" for name, agent in self.agents.items() if agent.hooks != Hooks())
        return frozenset((*self.tools, *models, *hooked))

    def can_run(self, definition: Definition) -> bool:
        return self.offers.issuperset(definition.needs)

    def queues(self, stored: Iterable[Definition]) -> list[str]:
        """The queues that a worker with this code serves, of the definitions that there are."""
        served = {queue_of(each) for each in (*self.definitions(), *stored) if self.can_run(each)}
        return sorted(served | {ANYWHERE})


def tool_agent(tool: ToolSpec) -> Definition:
    """A tool that can be given a task of its own, or be woken by itself: run durably, with no model."""
    return Definition(
        name=f"tool.{tool.name}",
        model=DIRECT,
        tools=(tool,),
        builtin_tools=(),
        subscriptions=tool.subscriptions,
        output=tool.output,
    )

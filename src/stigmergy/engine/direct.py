"""The model of a task that is a tool: no model at all. It has the tool called with what the task says last; the result is the
run's."""

from stigmergy.agents.models.port import Asked, OnText, Reply, Request

DIRECT = "direct"


class DirectModel:
    async def request(self, request: Request, on_text: OnText | None = None) -> Reply:
        last = request.messages[-1]
        return Reply(tool_calls=(Asked("direct", request.tools[0].name, last.content),), input_tokens=0, output_tokens=0)

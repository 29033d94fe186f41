"""The model of a task that is a tool: no model at all. It has the tool called with what the task says, and gives the result."""

from stigmergy.agents.models.port import Asked, ModelFailed, OnText, Reply, Request


class DirectModel:
    async def request(self, request: Request, on_text: OnText | None = None) -> Reply:
        last = request.messages[-1]
        if last.role == "tool":
            if last.content.startswith("error: "):
                raise ModelFailed(f"the tool failed: {last.content.removeprefix('error: ')}")
            return Reply(text=last.content, input_tokens=0, output_tokens=0)
        return Reply(tool_calls=(Asked("direct", request.tools[0].name, last.content),), input_tokens=0, output_tokens=0)

"""A small MCP server: over its input and output when it is run as a program, or over HTTP."""

import os
import sys
import time
from pathlib import Path

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError


def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


def say(text: str) -> str:
    """What was said."""
    return text


def fail(why: str) -> str:
    """Fails."""
    raise ToolError(why)


def slow(seconds: float) -> str:
    """Takes its time."""
    time.sleep(seconds)
    return "done"


def end(touch: str) -> str:
    """Ends the server before it answers, and leaves a trace."""
    Path(touch).write_text("here")
    os._exit(3)


def picture() -> Image:
    """A picture."""
    return Image(data=b"\x89PNG", format="png")


def environment(name: str) -> str:
    """A variable of the server."""
    return os.environ.get(name, "")


def process() -> int:
    """The server's process."""
    return os.getpid()


def build() -> MCPServer:
    server = MCPServer("small")
    for tool in (add, say, fail, slow, end, picture, environment, process):
        server.add_tool(tool)
    return server


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(str(os.getpid()))
    build().run()

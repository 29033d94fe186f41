"""The tools that the engine has for agents: those of every part, by their names."""

from collections.abc import Mapping

from stigmergy.runs import delegation, notebook
from stigmergy.runs.tools import Asking, Builtin
from stigmergy.spaces import tools as spaces_tools
from stigmergy.toolsets import breadcrumbs

BUILTINS: Mapping[str, Builtin | Asking] = {
    tool.spec.name: tool for tool in (*delegation.TOOLS, *notebook.TOOLS, *spaces_tools.TOOLS, *breadcrumbs.TOOLS)
}

"""What is heavy is imported when it is first used: a program that reaches no model and no MCP server does not pay for them."""

import subprocess
import sys

HEAVY = ("pydantic_ai", "pydantic", "mcp", "mcp_types", "openai", "anthropic", "google.genai", "httpx2", "bpe_openai", "cel")


def test_a_program_without_a_provider_imports_none() -> None:
    code = (
        "import sys, stigmergy, stigmergy.app, stigmergy.engine.worker, stigmergy.api.app\n"
        "import stigmergy.agents.mcp\n"
        "from stigmergy.agents.models.named import named_model\n"
        "from stigmergy.agents.tokens import count_tokens\n"
        "named_model('openai:gpt-5-mini', {}), count_tokens('hello', 'openai:gpt-5-mini')\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"

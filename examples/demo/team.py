"""A small team in a space: `make run`, or `stigmergy serve examples/demo/team.py:app`; then `stigmergy chat demo`.

A guide who speaks with people, and a librarian who reads the documentation: the guide delegates, asks back when it does not
know what is meant, and asks for approval before it keeps a note. Everything is durable: stop the server in the middle of a
question, start it again, and answer.
"""

from library import read_docs, search_docs
from minds import guide, librarian

from stigmergy import Agent, App, ScriptedModel, ToolContext, tool

# Who talks to a server that asks for no token.
PERSON = "local"
SPACE = "demo"
GREETING = """
Two agents wait in the space `demo` (they follow a script, and say so). Talk to them:
  {command} chat demo --url {url}
    › @guide what are breadcrumbs?
    › @guide hello
    › @guide note that this works
or, without a terminal:
  curl -s {url}/v1/spaces/demo/messages -H 'Content-Type: application/json' -d '{"content": "@guide what are tokens?"}'
  curl -s {url}/v1/spaces/demo/messages?limit=5"""


@tool(visibility="visible")
async def keep_note(text: str, context: ToolContext) -> dict[str, str]:
    """Keep a note for the team."""
    spaces = app.spaces_of(context.entity_id)
    await spaces.set_memory(f"note {context.call_id}", text)
    return {"kept": text}


app = App(
    agents=[
        Agent(
            "librarian",
            ScriptedModel(librarian, name="scripted librarian", pause=0.05),
            "You know where things are written in the documentation. Say what it says, and where.",
            tools=[search_docs, read_docs],
        ),
        Agent(
            "guide",
            ScriptedModel(guide, name="scripted guide", pause=0.05),
            "You speak with people. What must be looked up, the librarian looks up for you.",
            tools=[keep_note],
            delegates=["librarian"],
            require_approval=["keep_note"],
        ),
    ],
    greeting=GREETING,
)


@app.at_start
async def open_the_space() -> None:
    """One space for all; it is there already when the server was here before."""
    mine = app.spaces_of(PERSON)
    if SPACE not in [space.id for space in await mine.find(limit=500)]:
        about = "A guide and a librarian answer questions about this project."
        await mine.create("demo", id=SPACE, about=about, members=["agent:guide", "agent:librarian"])
        await app.spaces_of("agent:guide").post(
            SPACE, "Hello. Ask me something about Stigmergy: write @guide, and your question."
        )

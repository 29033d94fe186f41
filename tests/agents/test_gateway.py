"""Gateway tools against a real HTTP server: what is sent, what comes back, what is refused, and where secrets are not."""

import json
import logging
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

from stigmergy.agents.config import parse_config
from stigmergy.agents.gateway import GatewayFailed, call_gateway, secrets_from
from stigmergy.agents.model import ToolSpec
from stigmergy.errors import StigmergyError
from stigmergy.net import AddressRefused, Reach
from support.web import Web

HERE = Reach(loopback=True)
KEY = 'k&y "1"/ä'


@pytest.fixture
def web() -> Iterator[Web]:
    with Web() as web:
        yield web


def tool(web: Web, path: str = "/", *, timeout: int = 5_000, **execution: Any) -> ToolSpec:
    given = {"name": "t", "executionType": "gateway", "execution": {"url": web.url + path, **execution}, "timeout": timeout}
    return parse_config({"name": "a", "model": "m", "tools": [given]}).definition.tools[0]


async def test_the_weather_config_of_the_seed_works_with_its_host_replaced(web: Web) -> None:
    execution = {"url": f"{web.url}/current?city={{{{input.city}}}}", "method": "GET", "timeout": 10000}
    weather = {
        "name": "fetchWeather",
        "description": "Get current weather for a city",
        "executionType": "gateway",
        "visibility": "visible",
        "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "execution": execution,
    }
    web.answer_json({"temperature": 21})
    spec = parse_config({"name": "a", "model": "m", "tools": [weather]}).definition.tools[0]
    assert await call_gateway(spec, {"city": "São Paulo & more/?"}, {}, HERE) == {"temperature": 21}
    assert (web.asked[0].method, web.asked[0].path) == ("GET", "/current?city=S%C3%A3o%20Paulo%20%26%20more%2F%3F")


async def test_templates_are_filled_in_url_headers_and_body(web: Web) -> None:
    spec = tool(
        web,
        "/{{input.what}}?n={{ input.list.1 }}",
        method="POST",
        headers={"X-Of": "{{input.deep.name}}!", "Authorization": "Bearer {{secret.KEY}}"},
        body={"all": "{{input.deep}}", "text": "about {{input.what}}", "n": 3, "secret": ["{{secret.KEY}}"]},
    )
    args = {"what": "a/../b", "list": [1, 2], "deep": {"name": "mia", "age": 3}}
    await call_gateway(spec, args, {"KEY": "plain", "OTHER": "x"}, HERE)
    (asked,) = web.asked
    assert (asked.method, asked.path) == ("POST", "/a%2F..%2Fb?n=2")
    assert (asked.headers["x-of"], asked.headers["authorization"]) == ("mia!", "Bearer plain")
    assert asked.headers["content-type"] == "application/json"
    assert json.loads(asked.body) == {
        "all": {"name": "mia", "age": 3},
        "text": "about a/../b",
        "n": 3,
        "secret": ["plain"],
    }


async def test_a_body_that_is_a_text_is_filled_as_what_it_is(web: Web) -> None:
    args = {"q": 'a "quote"\n'}
    await call_gateway(tool(web, method="POST", body='{"q": "{{input.q}}"}'), args, {}, HERE)
    plain = tool(web, method="POST", body="q={{input.q}}", headers={"Content-Type": "text/plain"})
    await call_gateway(plain, args, {}, HERE)
    await call_gateway(tool(web, method="PUT"), args, {}, HERE)
    assert json.loads(web.asked[0].body) == args
    assert web.asked[1].body == b'q=a "quote"\n'
    assert json.loads(web.asked[2].body) == args


async def test_a_text_answer_is_a_text(web: Web) -> None:
    web.answer = (200, {"content-type": "text/plain; charset=latin-1"}, "grün".encode("latin-1"))
    assert await call_gateway(tool(web), {}, {}, HERE) == "grün"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((404, {}, b"no such city"), "answered 404: no such city"),
        ((500, {}, b"x" * 2_000), "answered 500: xxx"),
        ((302, {"location": "http://169.254.169.254/"}, b""), "a redirect, which is not followed"),
        ((200, {}, b"x" * 2_000_000), "larger than 1,048,576 bytes"),
    ],
)
async def test_what_is_no_good_answer_fails(web: Web, answer: Any, said: str) -> None:
    web.answer = answer
    with pytest.raises(GatewayFailed, match=said):
        await call_gateway(tool(web), {}, {}, HERE)
    assert len(web.asked) == 1


async def test_a_limit_of_its_own_is_kept(web: Web) -> None:
    web.answer = (200, {}, b"x" * 101)
    with pytest.raises(GatewayFailed, match="larger than 100 bytes"):
        await call_gateway(tool(web, maxBytes=100), {}, {}, HERE)


async def test_an_answer_that_takes_too_long_fails(web: Web) -> None:
    web.delay = 0.5
    with pytest.raises(GatewayFailed, match=r"no answer within 0\.1 s"):
        await call_gateway(tool(web, timeout=100), {}, {}, HERE)


async def test_a_server_that_is_not_there_fails() -> None:
    with Web() as web:
        gone = tool(web)
    with pytest.raises(GatewayFailed, match="ConnectError"):
        await call_gateway(gone, {}, {}, HERE)


@pytest.mark.parametrize(
    ("args", "said"),
    [({}, "the arguments have no city"), ({"city": "a\r\nX-Evil: 1"}, "line break")],
)
async def test_arguments_that_do_not_fit_fail_without_a_call(web: Web, args: dict[str, Any], said: str) -> None:
    with pytest.raises(GatewayFailed, match=said):
        await call_gateway(tool(web, headers={"x-city": "{{input.city}}"}), args, {}, HERE)
    assert not web.asked


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/",
        "http://localhost:{port}/",
        "http://[::1]:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/",
        "http://10.1.2.3/",
        "http://169.254.169.254/latest/meta-data",
        "http://0.0.0.0:{port}/",
        "http://2130706433:{port}/",
        "http://0x7f.1:{port}/",
    ],
)
async def test_private_addresses_are_not_called_unless_allowed(web: Web, url: str) -> None:
    execution = {"url": url.format(port=web.url.rpartition(":")[2])}
    closed = ToolSpec(name="t", execution_type="gateway", execution=execution, timeout_ms=2_000)
    with pytest.raises(AddressRefused):
        await call_gateway(closed, {}, {}, Reach())
    assert not web.asked


# ---- secrets ----


async def test_a_secret_that_the_server_does_not_have_is_named(web: Web) -> None:
    with pytest.raises(GatewayFailed, match="STIGMERGY_SECRET_KEY"):
        await call_gateway(tool(web, headers={"k": "{{secret.KEY}}"}), {}, {}, HERE)
    assert not web.asked


async def test_an_answer_that_repeats_a_secret_is_without_it(web: Web) -> None:
    web.answer = lambda asked: (200, {"content-type": "application/json"}, json.dumps({"you": asked.headers["k"]}).encode())
    spec = tool(web, "/?key={{secret.KEY}}", headers={"k": "{{secret.KEY}}"})
    assert await call_gateway(spec, {}, {"KEY": "s3cret-value"}, HERE) == {"you": "[secret KEY]"}


@pytest.mark.parametrize("how", ["refused", "gone", "slow"])
async def test_no_error_and_no_log_line_has_a_secret(web: Web, how: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    web.answer = lambda asked: (403, {}, f"{asked.path} {asked.body.decode()}".encode())
    spec = tool(web, "/?key={{secret.KEY}}", method="POST", body={"key": "{{secret.KEY}}"}, timeout=300)
    if how == "slow":
        web.delay = 0.6
    elif how == "gone":
        broken = {"url": "http://127.0.0.1:9/?key={{secret.KEY}}", "method": "POST"}
        spec = ToolSpec(name="t", execution_type="gateway", execution=broken, timeout_ms=2_000)
    with pytest.raises(StigmergyError) as failed:
        await call_gateway(spec, {}, {"KEY": KEY}, HERE)
    told = "".join(traceback.format_exception(failed.value)) + caplog.text
    for form in (KEY, "k%26y%20%221%22%2F%C3%A4", 'k&y \\"1\\"/ä'):
        assert form not in told


def test_secrets_are_named_in_the_environment() -> None:
    environment = {"STIGMERGY_SECRET_KEY": "k", "STIGMERGY_SECRET": "not one", "STIGMERGY_SECRET_EMPTY": "", "PATH": "/"}
    assert secrets_from(environment) == {"KEY": "k"}

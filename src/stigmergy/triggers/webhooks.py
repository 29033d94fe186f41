"""A delivery as an HTTP request, and what an answer means. Pure, but for the posting itself.

Signed as Standard Webhooks does: the id is the delivery's and stays over retries; the time is that of the try. `stigmergy-cause`
says why the receiver is called; who hands it back with what it writes keeps the chain of causes whole.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from stigmergy.errors import Invalid
from stigmergy.kernel.clock import Clock
from stigmergy.net import AddressRefused
from stigmergy.triggers.events import Happened, body_of
from stigmergy.triggers.model import Answer, Delivery, Webhook, signing_key
from stigmergy.triggers.pauses import asked_pause_ms
from stigmergy.triggers.posting import Poster, PostFailed, target_of

CAUSE_HEADER = "stigmergy-cause"
MOST_HEADERS = 50
MOST_HEADER_BYTES = 8 * 1024

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE = re.compile(r"[\x20-\x7e\t]*")
_OURS = frozenset(
    {"host", "content-length", "content-type", "connection", "expect", "keep-alive", "te", "trailer", "upgrade"}
) | {
    *("transfer-encoding", "user-agent", CAUSE_HEADER),
}
_OUR_PREFIXES = ("webhook-", "proxy-")

Verdict = Literal["delivered", "again", "dead"]


class Outcome(NamedTuple):
    """What came of a try; `pause_ms` is what the receiver asked for."""

    verdict: Verdict
    answer: Answer
    pause_ms: int | None = None


def check_headers(headers: Mapping[str, str], where: str = "headers") -> None:
    if len(headers) > MOST_HEADERS or sum(len(name) + len(value) for name, value in headers.items()) > MOST_HEADER_BYTES:
        raise Invalid(f"a webhook has up to {MOST_HEADERS} headers with {MOST_HEADER_BYTES:,} characters in all", where)
    for name, value in headers.items():
        place = f"{where}.{name[:40]}"
        if _NAME.fullmatch(name) is None:
            raise Invalid("this cannot name a header", place)
        if name.lower() in _OURS or name.lower().startswith(_OUR_PREFIXES):
            raise Invalid("this header is set by the delivery itself; choose another name", place)
        if _VALUE.fullmatch(value) is None:
            raise Invalid("a header's value is printable ASCII in one line", place)


def verdict_on(status: int) -> Verdict:
    """2xx is delivered. What may be better next time is tried again; a redirect or a refusal would only be repeated."""
    if 200 <= status < 300:
        return "delivered"
    return "again" if status in (408, 429) or status >= 500 else "dead"


def signature(key: bytes, id: str, timestamp: int, body: bytes) -> str:
    signed = hmac.digest(key, f"{id}.{timestamp}.".encode() + body, hashlib.sha256)
    return "v1," + base64.b64encode(signed).decode()


def cause_header(delivery: Delivery) -> str:
    return f"{delivery.change_seq}:{delivery.depth + 1}"


def parse_cause(text: str) -> tuple[int, int]:
    """The cause and the depth that a receiver hands back."""
    found = re.fullmatch(r"([0-9]{1,15}):([0-9]{1,6})", text.strip())
    if found is None:
        raise Invalid("this is handed back as the delivery had it, such as 1234:1", CAUSE_HEADER)
    return int(found[1]), int(found[2])


class Caller:
    """Hands deliveries to webhooks. `secret` signs for those that have none of their own; without one they are not signed."""

    def __init__(self, poster: Poster, clock: Clock, secret: str | None = None) -> None:
        self._poster = poster
        self._clock = clock
        self._key = signing_key(secret, "webhook_secret") if secret is not None else None

    async def hand_over(self, webhook: Webhook, happened: Happened) -> Outcome:
        started = self._clock.monotonic()
        now = self._clock.now()
        try:
            target = target_of(webhook.url)
            body = body_of(happened)
            headers = self._headers(webhook, happened.delivery, now // 1000, body)
            posted = await self._poster.post(target, headers, body, webhook.timeout_ms / 1000)
        except PostFailed as error:
            return Outcome("again", self._answer(now, started, error=str(error)))
        except (AddressRefused, Invalid) as error:
            return Outcome("dead", self._answer(now, started, error=str(error)))
        text = posted.body.decode("utf-8", "replace").replace("\0", "�") or None
        answer = self._answer(now, started, status=posted.status, body=text)
        pause = asked_pause_ms(posted.retry_after, self._clock.now()) if posted.status in (429, 503) else None
        return Outcome(verdict_on(posted.status), answer, pause)

    def _headers(self, webhook: Webhook, delivery: Delivery, timestamp: int, body: bytes) -> str:
        lines = [f"{name}: {value}\r\n" for name, value in webhook.headers.items()]
        key = signing_key(webhook.secret) if webhook.secret is not None else self._key
        if key is not None:
            lines.append(f"webhook-signature: {signature(key, delivery.id, timestamp, body)}\r\n")
        return (
            f"content-type: application/json\r\nuser-agent: stigmergy\r\nwebhook-id: {delivery.id}\r\n"
            f"webhook-timestamp: {timestamp}\r\n{CAUSE_HEADER}: {cause_header(delivery)}\r\n{''.join(lines)}"
        )

    def _answer(
        self, at: int, started: float, *, status: int | None = None, body: str | None = None, error: str | None = None
    ) -> Answer:
        took = round((self._clock.monotonic() - started) * 1000)
        return Answer(status=status, body=body, error=None if error is None else error[:1000], at=at, took_ms=took)

"""What the program tells of itself: traces, metrics, logs. Off unless a setting asks for it, and then it costs nothing.

Traces and metrics go through OpenTelemetry (the extra `telemetry`). What is measured is wrapped where it is made: a database in
`kernel/observed.py`, a request in `api/observed.py`; without telemetry they are not wrapped at all.
"""

import logging
import time
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from typing import Any, Protocol

import msgspec

from stigmergy.errors import Invalid, StigmergyError
from stigmergy.settings import Settings

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Telemetry(Protocol):
    def timed(
        self, operation: str, name: str, *, carrier: Mapping[str, str] | None = None, outgoing: bool = False
    ) -> AbstractContextManager[dict[str, Any]]:
        """Measure what happens inside, as a span and as a duration. What is put into the dict becomes attributes. `carrier` has
        the headers of whoever asked, so that their trace goes on here; `outgoing` is what is asked of somebody else."""
        ...

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        ...

    def close(self) -> None:
        """Send what was not sent yet."""
        ...


def open_telemetry(settings: Settings) -> Telemetry | None:
    """What the settings ask for; None when they ask for nothing."""
    if settings.telemetry == "off":
        return None
    if find_spec("opentelemetry.sdk") is None or find_spec("opentelemetry.exporter.prometheus") is None:
        raise Invalid("telemetry needs the extra packages: pip install 'stigmergy[telemetry]'", "telemetry")
    return _open(settings)


def _open(settings: Settings) -> Telemetry:
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from prometheus_client import REGISTRY

    resource = Resource.create({"service.name": "stigmergy"})
    meters = MeterProvider([PrometheusMetricReader()], resource=resource)
    tracers = TracerProvider(resource=resource)
    if settings.telemetry == "all":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        # the endpoint and all else is OpenTelemetry's own OTEL_EXPORTER_OTLP_… environment
        tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return _OpenTelemetry(tracers, meters, REGISTRY, owned=True)


def of_providers(tracers: Any, meters: Any) -> Telemetry:
    """For a program that has set up OpenTelemetry itself: `App(telemetry=of_providers(tracer_provider, meter_provider))`. What it
    gave is its own to shut down."""
    from prometheus_client import REGISTRY

    return _OpenTelemetry(tracers, meters, REGISTRY, owned=False)


def traceparent() -> str | None:
    """The span that this is part of, as W3C's header has it, for what goes on elsewhere or later. None where nobody traces."""
    if not _OpenTelemetry.was_opened:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent")


class _OpenTelemetry:
    was_opened = False  # in this process, ever

    def __init__(self, tracers: Any, meters: Any, registry: Any, *, owned: bool) -> None:
        _OpenTelemetry.was_opened = True
        self._owned = owned
        self._tracers = tracers
        self._meters = meters
        self._registry = registry
        self._tracer = tracers.get_tracer("stigmergy")
        meter = meters.get_meter("stigmergy")
        self._durations = meter.create_histogram(
            "stigmergy.operation.duration", unit="s", description="How long operations took, by what they are."
        )
        self._failures = meter.create_counter("stigmergy.operation.failures", description="Operations that failed, by code.")

    @contextmanager
    def timed(
        self, operation: str, name: str, *, carrier: Mapping[str, str] | None = None, outgoing: bool = False
    ) -> Generator[dict[str, Any]]:
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind

        labels = {"operation": operation, "name": name}
        attributes: dict[str, Any] = {}
        context = extract(carrier) if carrier is not None else None
        began = time.perf_counter()
        kind = SpanKind.CLIENT if outgoing else SpanKind.INTERNAL
        with self._tracer.start_as_current_span(f"{operation} {name}", context=context, kind=kind) as span:
            try:
                yield attributes
            except BaseException as error:
                code = error.code if isinstance(error, StigmergyError) else type(error).__name__
                self._failures.add(1, labels | {"code": code})
                attributes["error.type"] = code
                raise
            finally:
                span.set_attributes(labels | attributes)
                self._durations.record(time.perf_counter() - began, labels)

    def exposition(self) -> bytes:
        from prometheus_client import generate_latest

        return generate_latest(self._registry)

    def close(self) -> None:
        if self._owned:
            self._tracers.shutdown()
            self._meters.shutdown()


class JsonLines(logging.Formatter):
    """One JSON document a line: time, level, logger, message, and the error with its trace."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, str] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            said["error"] = self.formatException(record.exc_info)
        try:
            return msgspec.json.encode(said).decode()
        except UnicodeEncodeError:  # half a surrogate pair, in what a program's own code raised
            whole = {name: text.encode("utf-8", "backslashreplace").decode() for name, text in said.items()}
            return msgspec.json.encode(whole).decode()


def set_up_logs(settings: Settings) -> None:
    """The server's log, on standard error."""
    handler = logging.StreamHandler()
    if settings.log_format == "json":
        handler.setFormatter(JsonLines())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    # times are UTC on the wire and in the log
    logging.Formatter.converter = time.gmtime
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler])

"""Send a session to an OpenTelemetry collector: python -m pytest bench_tests -p report_otlp.

OTEL_EXPORTER_OTLP_ENDPOINT names it, as for any program; pip install
opentelemetry-exporter-otlp-proto-http. Numbers of a case with a broken run are left out.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from pytest_dlperf.report.report import Note, Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_dlperf.report.session import Night


class Otlp(Report):
    """Gauges as those of ``--dlperf-openmetrics``, with case and metric as attributes."""

    name = "OTLP metrics"
    is_required = False  # a collector that is down makes no session red

    def write(self, night: Night) -> Iterator[Note]:
        """Send what was measured whole."""
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExportResult
        from opentelemetry.sdk.resources import Resource

        from pytest_dlperf.report.services import session_numbers

        results = night.results
        reader = InMemoryMetricReader()
        resource = {"service.name": "pytest-dlperf", "dlperf.cluster": results.cluster}
        meter = MeterProvider([reader], Resource.create(resource)).get_meter("pytest-dlperf")
        gauge = cache(meter.create_gauge)
        for one in session_numbers(results):
            about = {"case": one.case_id, "metric": one.metric}
            for name in ("value", "reference", "loss_ratio"):
                number = getattr(one, name)
                if number is not None:
                    gauge(f"dlperf.{name}").set(number, {**about, "unit": one.unit})
            if one.verdict is not None:
                gauge("dlperf.verdict").set(1, {**about, "verdict": one.verdict})
        sent = OTLPMetricExporter().export(reader.get_metrics_data())
        if sent is not MetricExportResult.SUCCESS:
            raise OSError("no collector took them")
        yield Note("OTLP metrics sent")


def pytest_dlperf_reports() -> list[Report]:
    """Add the report."""
    return [Otlp()]

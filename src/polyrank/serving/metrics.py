"""What Prometheus scrapes. Labels come from routes and served models, never from requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector

if TYPE_CHECKING:
    from polyrank.serving.runtime import Runtime
    from polyrank.serving.scheduling.flow import Flow

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS")
Plain = list[Any]
"""A family of samples as JSON: name, documentation, kind, [[name, labels, value], …]."""


class Metrics:
    """The metrics of one app, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.requests = Counter(
            "polyrank_requests",
            "Requests, by route and status; 499 is a client that went away.",
            ["endpoint", "method", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "polyrank_request_seconds",
            "Where the time of requests went: queue, tokenise, model, search, and in total.",
            ["endpoint", "stage"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.tokens = Counter(
            "polyrank_tokens", "Tokens read for requests.", ["endpoint"], registry=self.registry
        )
        self.batch_items = Histogram(
            "polyrank_batch_items",
            "Texts or pairs that were computed together.",
            ["lane"],
            buckets=ITEMS,
            registry=self.registry,
        )
        self.batch_seconds = Histogram(
            "polyrank_batch_seconds",
            "Seconds of a batch.",
            ["lane"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.batch_tokens = Counter(
            "polyrank_batch_tokens",
            "Tokens that were computed, and the padding beside them.",
            ["lane", "kind"],
            registry=self.registry,
        )
        ProcessCollector(registry=self.registry)

    def watch(self, runtime: Runtime) -> None:
        """Tell of a runtime's queue, cache and index, too, whenever it is asked."""
        self.registry.register(Gauges(runtime))

    def request(self, endpoint: str, method: str, status: int, seconds: float, flow: Flow) -> None:
        """Count a request."""
        known = method if method in METHODS else "other"
        self.requests.labels(endpoint, known, str(status)).inc()
        self.seconds.labels(endpoint, "total").observe(seconds)
        for stage, value in asdict(flow.times).items():
            if value:
                self.seconds.labels(endpoint, stage).observe(value)
        if flow.num_tokens:
            self.tokens.labels(endpoint).inc(flow.num_tokens)

    def batch(
        self, lane: str, stage: str, *, items: int, tokens: int, padded: int, seconds: float
    ) -> None:
        """Count a batch; the compute thread calls it.

        Args:
            lane: The model and its graph.
            stage: `model` or `search`.
            items: Its texts or pairs.
            tokens: Their tokens.
            padded: Their tokens with padding.
            seconds: What it took.
        """
        name = lane if stage == "model" else f"{lane} {stage}"
        self.batch_items.labels(name).observe(items)
        self.batch_seconds.labels(name).observe(seconds)
        self.batch_tokens.labels(name, "text").inc(tokens)
        self.batch_tokens.labels(name, "padding").inc(padded - tokens)

    def text(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self.registry)

    def plain(self) -> list[Plain]:
        """Everything as JSON has it, for another process that is asked for all."""
        return [
            [
                family.name,
                family.documentation,
                family.type,
                [[one.name, one.labels, one.value] for one in family.samples],
            ]
            for family in self.registry.collect()
        ]


class Gauges:
    """The state of a runtime when it is asked."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def collect(self) -> Iterable[Metric]:
        """Its families."""
        runtime = self.runtime
        yield gauge(
            "polyrank_queued_tokens",
            "Tokens that wait or are being computed.",
            runtime.scheduler.queued_tokens,
        )
        cache = runtime.candidate_cache
        lookups = CounterMetricFamily(
            "polyrank_candidate_cache_lookups",
            "Candidates of rerank requests that the cache had, or had not.",
            labels=["result"],
        )
        lookups.add_metric(["hit"], cache.hits)
        lookups.add_metric(["miss"], cache.misses)
        yield lookups
        yield gauge(
            "polyrank_candidate_cache_bytes", "Bytes of the cache of candidates.", cache.num_bytes
        )
        index = runtime.pipeline.index
        if index is not None and index.engine.manifest is not None:
            yield gauge("polyrank_index_candidates", "Candidates of the index.", len(index))


def gauge(name: str, documentation: str, value: float) -> Metric:
    """One number."""
    return GaugeMetricFamily(name, documentation, value=value)


class Workers:
    """The metrics of several processes in one, each sample with the number of its process."""

    def __init__(self, told: Sequence[tuple[int, list[Plain]]]) -> None:
        self.told = told

    def collect(self) -> Iterable[Metric]:
        """The families of all."""
        families: dict[str, Metric] = {}
        for worker, plain in self.told:
            for name, documentation, kind, samples in plain:
                family = families.setdefault(name, Metric(name, documentation, kind))
                for sample, labels, value in samples:
                    family.add_sample(sample, {**labels, "worker": str(worker)}, value)
        return families.values()


def exposition(collector: Workers) -> bytes:
    """The text that Prometheus reads, of several processes."""
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry)

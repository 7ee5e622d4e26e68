use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;

use super::in_flight::InFlight;
use super::room::Room;
use crate::jobs::Stats;
use crate::wire::Service;

/// What an operator watches, in the form that Prometheus reads (OpenMetrics).
pub(super) struct Metrics {
    registry: Registry,
    requests: Family<Answered, Counter>,
    seconds: Family<Called, Histogram>,
    refused_logins: Counter,
    gauges: Gauges,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    path: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Called {
    path: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InState {
    state: &'static str,
}

/// What is looked up when somebody asks.
#[derive(Default)]
struct Gauges {
    jobs: Family<InState, Gauge>,
    output: Counter,
    started: Counter,
    queued: Gauge,
    ssh_connections: Gauge,
    ssh_channels: Gauge,
    http_connections: Gauge,
    calls: Gauge,
}

impl Metrics {
    pub(super) fn new() -> Self {
        let mut registry = Registry::with_prefix("sshjobs");
        let metric = Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 4.0, 9))),
            refused_logins: Counter::default(),
            gauges: Gauges::default(),
            registry: Registry::default(),
        };
        let Self { requests, seconds, refused_logins, gauges, .. } = &metric;
        registry.register("http_requests", "Requests that were answered", requests.clone());
        registry.register_with_unit(
            "http_request_duration",
            "Time until the head of the answer, waits included",
            Unit::Seconds,
            seconds.clone(),
        );
        registry.register("refused_logins", "Requests without a valid token", refused_logins.clone());
        registry.register("jobs", "Jobs of this process", gauges.jobs.clone());
        registry.register("jobs_started", "Jobs that were started", gauges.started.clone());
        registry.register_with_unit("output", "Output of jobs", Unit::Bytes, gauges.output.clone());
        registry.register_with_unit(
            "store_queue",
            "Output that waits to be stored",
            Unit::Bytes,
            gauges.queued.clone(),
        );
        registry.register("ssh_connections", "Connections to hosts", gauges.ssh_connections.clone());
        registry.register("ssh_channels", "Channels in use on them", gauges.ssh_channels.clone());
        registry.register("http_connections", "Connections of clients", gauges.http_connections.clone());
        registry.register(
            "calls_in_flight",
            "Calls that are being answered, waits included",
            gauges.calls.clone(),
        );
        Self { registry, ..metric }
    }

    pub(super) fn count_refused_login(&self) {
        self.refused_logins.inc();
    }

    fn text(&self, stats: Stats, (room, in_flight): (&Room, &InFlight)) -> String {
        let gauges = &self.gauges;
        let set = |gauge: &Gauge, value: usize| _ = gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        let raise = |counter: &Counter, total: u64| _ = counter.inc_by(total.saturating_sub(counter.get()));
        set(&gauges.jobs.get_or_create(&InState { state: "running" }), stats.running);
        set(&gauges.jobs.get_or_create(&InState { state: "finished" }), stats.finished);
        raise(&gauges.output, stats.output_bytes);
        raise(&gauges.started, stats.started);
        set(&gauges.queued, stats.store_queue_bytes);
        set(&gauges.ssh_connections, stats.connections);
        set(&gauges.ssh_channels, stats.channels_in_use);
        set(&gauges.http_connections, room.taken());
        set(&gauges.calls, in_flight.count());
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a string takes all");
        text
    }
}

/// Counts what is answered, by route: paths that nobody serves are one.
pub(super) async fn count(State(metrics): State<Arc<Metrics>>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str).to_owned();
    let began = Instant::now();
    let response = next.run(request).await;
    let status = response.status().as_u16();
    metrics.seconds.get_or_create(&Called { path: path.clone() }).observe(began.elapsed().as_secs_f64());
    metrics.requests.get_or_create(&Answered { path, status }).inc();
    response
}

/// `GET /metrics`, on an address of its own.
pub(super) fn routes(metrics: Arc<Metrics>, service: Service, of: (Room, Arc<InFlight>)) -> Router {
    let shown = async move || show(&metrics, &service, &of);
    Router::new().route("/metrics", get(shown))
}

fn show(metrics: &Metrics, service: &Service, (room, in_flight): &(Room, Arc<InFlight>)) -> Response {
    let text = metrics.text(service.library().stats(), (room, in_flight));
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

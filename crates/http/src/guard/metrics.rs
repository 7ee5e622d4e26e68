//! Counters and gauges in OpenMetrics format.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;

use super::in_flight::InFlight;
use super::names::AllowedNames;
use crate::connections::ConnectionRoom;
use crate::reject;
use crate::status::HttpFailure;
use crate::tls::Certificate;
use sshjobs_core::jobs::{Health, Stats};
use sshjobs_wire::Service;

/// Metrics for operators, in OpenMetrics format as read by Prometheus.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<AnsweredRequest, Counter>,
    seconds: Family<Called, Histogram>,
    refused_logins: Counter,
    gauges: Gauges,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnsweredRequest {
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

/// Values that are read on each request for metrics.
#[derive(Default)]
struct Gauges {
    jobs: Family<InState, Gauge>,
    output: Counter,
    started: Counter,
    queued: Gauge,
    ended_badly: Family<InState, Counter>,
    store_usable: Gauge,
    store_errors: Counter,
    store_free: Gauge,
    policy_usable: Gauge,
    audit_usable: Gauge,
    approvals_waiting: Gauge,
    notifications_given_up: Gauge,
    hosts_failing: Gauge,
    certificate_end: Gauge,
    ssh_connections: Gauge,
    ssh_channels: Gauge,
    http_connections: Gauge,
    calls: Gauge,
    replicas: Gauge,
    hosts_held: Gauge,
    lease_age: Gauge<f64, AtomicU64>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("sshjobs");
        let metric = Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(|| {
                // From 1 ms to 65 s, since calls may wait for output.
                Histogram::new(exponential_buckets(0.001, 4.0, 9))
            }),
            refused_logins: Counter::default(),
            gauges: Gauges::default(),
            // Replaced at the end: the fields are registered while `registry` is still a variable.
            registry: Registry::default(),
        };
        let Self {
            requests,
            seconds,
            refused_logins,
            gauges,
            ..
        } = &metric;
        registry.register(
            "http_requests",
            "Requests that were answered",
            requests.clone(),
        );
        registry.register_with_unit(
            "http_request_duration",
            "Time until the head of the answer, waits included",
            Unit::Seconds,
            seconds.clone(),
        );
        registry.register(
            "refused_logins",
            "Requests without a valid token",
            refused_logins.clone(),
        );
        registry.register("jobs", "Jobs of this process", gauges.jobs.clone());
        registry.register(
            "jobs_started",
            "Jobs that were started",
            gauges.started.clone(),
        );
        registry.register_with_unit(
            "output",
            "Output of jobs",
            Unit::Bytes,
            gauges.output.clone(),
        );
        registry.register_with_unit(
            "store_queue",
            "Output that waits to be stored",
            Unit::Bytes,
            gauges.queued.clone(),
        );
        registry.register(
            "ssh_connections",
            "Connections to hosts",
            gauges.ssh_connections.clone(),
        );
        registry.register(
            "ssh_channels",
            "Channels in use on them",
            gauges.ssh_channels.clone(),
        );
        registry.register(
            "http_connections",
            "Connections of clients",
            gauges.http_connections.clone(),
        );
        registry.register(
            "calls_in_flight",
            "Calls that are being answered, waits included",
            gauges.calls.clone(),
        );
        register_health(&mut registry, gauges);
        register_cluster(&mut registry, gauges);
        Self { registry, ..metric }
    }

    pub(crate) fn count_refused_login(&self) {
        self.refused_logins.inc();
    }

    fn text(
        &self,
        stats: Stats,
        health: &Health,
        rooms: &[ConnectionRoom],
        in_flight: &InFlight,
    ) -> String {
        let gauges = &self.gauges;
        gauges.set_health(stats, health);
        set(
            &gauges.jobs.get_or_create(&InState { state: "running" }),
            stats.running,
        );
        set(
            &gauges.jobs.get_or_create(&InState { state: "finished" }),
            stats.finished,
        );
        raise(&gauges.output, stats.output_bytes);
        raise(&gauges.started, stats.started);
        set(&gauges.queued, stats.store_queue_bytes);
        set(&gauges.ssh_connections, stats.connections);
        set(&gauges.ssh_channels, stats.channels_in_use);
        set(
            &gauges.http_connections,
            rooms.iter().map(ConnectionRoom::taken).sum(),
        );
        set(&gauges.calls, in_flight.count());
        if let Some(cluster) = stats.cluster {
            set(&gauges.replicas, cluster.replicas);
            set(&gauges.hosts_held, cluster.hosts);
            gauges.lease_age.set(cluster.lease_age.unwrap_or_default().as_secs_f64());
        }
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a string takes all");
        text
    }
}

impl Gauges {
    fn set_health(&self, stats: Stats, health: &Health) {
        let ends = &self.ended_badly;
        raise(&ends.get_or_create(&InState { state: "lost" }), stats.lost);
        raise(
            &ends.get_or_create(&InState { state: "refused" }),
            stats.refused,
        );
        raise(&self.store_errors, stats.store_errors);
        set(
            &self.store_usable,
            usize::from(health.store_trouble.is_none()),
        );
        let free = stats
            .store_free_bytes
            .map_or(-1, |free| i64::try_from(free).unwrap_or(i64::MAX));
        self.store_free.set(free);
        set(
            &self.policy_usable,
            usize::from(health.policy_trouble.is_none()),
        );
        set(&self.audit_usable, usize::from(!health.is_audit_failing));
        set(&self.approvals_waiting, health.approvals_waiting);
        set(&self.notifications_given_up, health.notifications_given_up);
        set(&self.hosts_failing, health.hosts_failing);
    }
}

/// The program, and its dependencies: 1 if one can be used, else 0.
fn register_health(registry: &mut Registry, gauges: &Gauges) {
    let program = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("build", "The program", program);
    registry.register(
        "jobs_ended_badly",
        "Jobs that were lost, and jobs that were refused or did not start",
        gauges.ended_badly.clone(),
    );
    registry.register(
        "store_usable",
        "Whether output and records can be stored",
        gauges.store_usable.clone(),
    );
    registry.register(
        "store_errors",
        "Writes to the store that have failed",
        gauges.store_errors.clone(),
    );
    registry.register_with_unit(
        "store_free",
        "Free space on the disk of the state directory; -1 if unknown",
        Unit::Bytes,
        gauges.store_free.clone(),
    );
    registry.register(
        "policy_usable",
        "Whether the policy file that is there now is in force; 1 without a policy",
        gauges.policy_usable.clone(),
    );
    registry.register(
        "audit_usable",
        "Whether the audit log can be written; 1 without one",
        gauges.audit_usable.clone(),
    );
    registry.register(
        "approvals_waiting",
        "Calls that wait for an approver",
        gauges.approvals_waiting.clone(),
    );
    registry.register(
        "notifications_given_up",
        "Notifications of the last days that could not be delivered",
        gauges.notifications_given_up.clone(),
    );
    registry.register(
        "hosts_failing",
        "Hosts whose last connection has failed",
        gauges.hosts_failing.clone(),
    );
    registry.register_with_unit(
        "certificate_end",
        "End of the certificate's validity, since the Unix epoch; 0 without TLS",
        Unit::Seconds,
        gauges.certificate_end.clone(),
    );
}

/// 0 without a cluster.
fn register_cluster(registry: &mut Registry, gauges: &Gauges) {
    registry.register(
        "cluster_replicas",
        "Replicas of the cluster that this one sees, with itself",
        gauges.replicas.clone(),
    );
    registry.register(
        "cluster_hosts_held",
        "Hosts that this replica holds",
        gauges.hosts_held.clone(),
    );
    registry.register_with_unit(
        "cluster_lease_age",
        "Time since this replica renewed its lease",
        Unit::Seconds,
        gauges.lease_age.clone(),
    );
}

/// Counts responses by route. All unknown paths count as one.
pub(crate) async fn count(
    State(metrics): State<Arc<Metrics>>,
    request: Request,
    next: Next,
) -> Response {
    // The route's pattern and not the path: each job id would make a time series.
    let path = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("other", MatchedPath::as_str)
        .to_owned();
    let began = Instant::now();
    let response = next.run(request).await;
    let status = response.status().as_u16();
    metrics
        .seconds
        .get_or_create(&Called { path: path.clone() })
        .observe(began.elapsed().as_secs_f64());
    metrics.requests.get_or_create(&AnsweredRequest { path, status }).inc();
    response
}

/// State of the metrics endpoint, and who may read it.
pub(crate) struct ShownMetrics {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) service: Service,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) rooms: Vec<ConnectionRoom>,
    pub(crate) names: AllowedNames,
    pub(crate) certificate: Option<Arc<Certificate>>,
}

/// `GET /metrics`, on an address of its own.
pub(crate) fn routes(shown: ShownMetrics) -> Router {
    let shown = Arc::new(shown);
    Router::new().route(
        "/metrics",
        get(async move |uri: Uri, headers: HeaderMap| shown.answer(&uri, &headers).await),
    )
}

impl ShownMetrics {
    async fn answer(&self, uri: &Uri, headers: &HeaderMap) -> Response {
        // Prometheus calls by any address of this machine, and DNS rebinding only works by name.
        if !self.names.is_plain_address(uri, headers) && self.names.host(uri, headers).is_none() {
            return HttpFailure::from(reject::wrong_host()).into_response();
        }
        let jobs = self.service.library();
        let health = jobs.health().await;
        let end = self.certificate.as_ref().and_then(|certificate| certificate.ends_at());
        self.metrics.gauges.certificate_end.set(end.unwrap_or(0));
        let text = self.metrics.text(jobs.stats(), &health, &self.rooms, &self.in_flight);
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        ([(header::CONTENT_TYPE, kind)], text).into_response()
    }
}

fn set(gauge: &Gauge, value: usize) {
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
}

/// Raises a counter to a total of the library: a counter can only be increased.
fn raise(counter: &Counter, total: u64) {
    counter.inc_by(total.saturating_sub(counter.get()));
}

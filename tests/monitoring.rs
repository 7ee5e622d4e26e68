//! Alert rules and dashboard: every metric that they name is one of the server's. tests/packages.rs tries the rules.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::json;

use crate::support::Sshd;
use crate::support::server::{Caller, Server};

const DASHBOARD: &str = include_str!("../packaging/monitoring/dashboard.json");
const ALERTS: &str = include_str!("../packaging/monitoring/alerts.yml");

/// The metrics that a text names.
fn metrics(text: &str) -> BTreeSet<&str> {
    let name = Regex::new(r"\bsshjobs_[a-z_]+\b").unwrap();
    name.find_iter(text).map(|found| found.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_and_the_alerts_name_metrics_that_the_server_has() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let caller = server.caller(&sshd, "monitored", &[]);
    // Counters of calls have a first value after the first call.
    caller.ok("hosts", json!({}));
    let refused = Caller::new(&server.url, "wrong").call("hosts", json!({}));
    assert_eq!(refused.0, 401);
    let mut reply = ureq::get(&server.metrics).call().unwrap();
    let served = reply.body_mut().read_to_string().unwrap();

    let served = metrics(&served);
    for text in [DASHBOARD, ALERTS] {
        let named = metrics(text);
        assert!(named.len() >= 5, "{named:?}");
        let unknown: Vec<_> = named.difference(&served).collect();
        assert!(unknown.is_empty(), "{unknown:?} of {served:?}");
    }
}

#[test]
fn the_operations_page_says_what_to_do_about_each_alert() {
    let page = include_str!("../docs/operations.md");
    let alert = Regex::new(r"- alert: (\w+)").unwrap();
    let mut count = 0;
    for found in alert.captures_iter(ALERTS) {
        assert!(
            page.contains(&format!("\n### {}\n", &found[1])),
            "{}",
            &found[1]
        );
        count += 1;
    }
    assert!(count >= 5);
}

//! Readers of a job, who continue after each fault.

use std::thread::JoinHandle;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use tokio::time::Instant;

use super::support::server::{Caller, events};

/// A line as a reader got it.
pub type Line = (u64, String);

/// The lines that a reader got, and the number of those that are missing.
#[derive(Default)]
pub struct Seen {
    pub lines: Vec<Line>,
    /// Lines that are gone, as reported to the reader.
    pub gone: u64,
}

/// Repeats a call until it is answered. Panics at the deadline, with the last failure.
fn until_answered<T>(
    deadline: Instant,
    job: &str,
    mut call: impl FnMut() -> Result<T, String>,
) -> T {
    loop {
        match call() {
            Ok(answer) => return answer,
            Err(failure) => assert!(Instant::now() < deadline, "{job}: no answer: {failure}"),
        }
        std::thread::park_timeout(Duration::from_millis(100));
    }
}

/// Reads a job to its end in pages of any size.
fn read_pages(caller: &Caller, job: &str, deadline: Instant, mut dice: SmallRng) -> Seen {
    let (mut seen, mut cursor) = (Seen::default(), 0);
    loop {
        let request = json!({"job_id": job, "since_line_no": cursor, "wait_ms": 1000 + dice.random_range(0..4000),
            "max_lines": dice.random_range(1..=2000), "max_bytes": 262_144, "format": "records"});
        let reply = until_answered(deadline, job, || match caller.try_call("tail", &request) {
            Ok((200, reply)) => Ok(reply),
            Ok((status, reply)) => Err(format!("{status} {reply}")),
            Err(error) => Err(error.to_string()),
        });
        seen.gone += reply["dropped_lines"].as_u64().unwrap_or(0);
        for record in reply["records"].as_array().into_iter().flatten() {
            seen.lines.push((
                record["line_no"].as_u64().unwrap(),
                record["text"].as_str().unwrap().to_owned(),
            ));
        }
        let last = reply["last_line_no"].as_u64().unwrap();
        assert!(last >= cursor, "{job}: from {cursor} back to {last}");
        cursor = last;
        if reply["still_running"] == false {
            return seen;
        }
        assert!(
            Instant::now() < deadline,
            "{job}: only {} lines at the time limit",
            seen.lines.len()
        );
    }
}

/// Follows a job to its end by its events, and continues after each break.
fn read_events(caller: &Caller, job: &str, deadline: Instant) -> Seen {
    let (mut seen, mut last) = (Seen::default(), 0);
    loop {
        let path = format!("/v1/jobs/{job}/stream");
        let response = until_answered(deadline, job, || {
            let response = caller.try_get(&path, &[("Last-Event-ID", &last.to_string())]);
            let response = response.map_err(|error| error.to_string())?;
            match response.status().as_u16() {
                200 | 204 => Ok(response),
                status => Err(status.to_string()),
            }
        });
        if response.status().as_u16() == 204 {
            return seen;
        }
        for event in events(response) {
            last = event.id.unwrap_or(last);
            match event.name.as_str() {
                "end" => return seen,
                "dropped" => seen.gone += event.data["dropped_lines"].as_u64().unwrap(),
                _ if event.data["text"].is_string() => {
                    let number = event.data["line_no"].as_u64().unwrap();
                    seen.lines.push((number, event.data["text"].as_str().unwrap().to_owned()));
                }
                _ => {}
            }
        }
        assert!(
            Instant::now() < deadline,
            "{job}: only {} lines at the time limit",
            seen.lines.len()
        );
    }
}

/// The readers of one job.
pub struct Readers {
    pub job: String,
    pub pages: JoinHandle<Seen>,
    pub events: JoinHandle<Seen>,
}

impl Readers {
    pub fn start(job: String, caller: &Caller, deadline: Instant, seed: u64) -> Self {
        let (by_page, by_event) = (caller.clone(), caller.clone());
        let (first, second) = (job.clone(), job.clone());
        Self {
            job,
            pages: std::thread::spawn(move || {
                read_pages(&by_page, &first, deadline, SmallRng::seed_from_u64(seed))
            }),
            events: std::thread::spawn(move || read_events(&by_event, &second, deadline)),
        }
    }
}

/// Checks that a reader saw each line of a job once, in order, under its number. With `gaps_allowed`, lines may be missing
/// if the reader learned how many.
pub fn assert_whole(reader: &str, number: usize, seen: &Seen, count: u64, gaps_allowed: bool) {
    let mut previous = 0;
    for (line_no, text) in &seen.lines {
        assert!(*line_no > previous, "{reader}: {line_no} after {previous}");
        assert_eq!(*text, format!("job {number} line {line_no}"), "{reader}");
        previous = *line_no;
    }
    let missing = count - seen.lines.len() as u64;
    assert_eq!(
        seen.gone, missing,
        "{reader} of job {number}: lines that are gone, as told and as counted"
    );
    assert!(
        missing == 0 || gaps_allowed,
        "{reader} of job {number}: {missing} lines are missing"
    );
}

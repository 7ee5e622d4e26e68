//! Readers of a job, who continue after each fault.

use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::Dice;
use super::support::server::{Caller, events};

/// A line as a reader got it.
pub type Line = (u64, String);

/// Repeats a call until it is answered. Panics at the deadline.
fn until_answered<T>(deadline: Instant, job: &str, mut call: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(answer) = call() {
            return answer;
        }
        assert!(Instant::now() < deadline, "{job}: no answer in time");
        std::thread::park_timeout(Duration::from_millis(100));
    }
}

/// Reads a job to its end in pages of any size.
fn read_pages(caller: &Caller, job: &str, deadline: Instant, mut dice: Dice) -> Vec<Line> {
    let (mut lines, mut cursor) = (Vec::new(), 0);
    loop {
        let request = json!({"job_id": job, "since_line_no": cursor, "wait_ms": 1000 + dice.roll(4000),
            "max_lines": 1 + dice.roll(2000), "max_bytes": 262_144, "format": "records"});
        let reply = until_answered(deadline, job, || match caller.try_call("tail", &request) {
            Ok((200, reply)) => Some(reply),
            _ => None,
        });
        assert!(reply["dropped_lines"].is_null(), "{job}: {reply}");
        for record in reply["records"].as_array().into_iter().flatten() {
            lines.push((
                record["line_no"].as_u64().unwrap(),
                record["text"].as_str().unwrap().to_owned(),
            ));
        }
        let last = reply["last_line_no"].as_u64().unwrap();
        assert!(last >= cursor, "{job}: from {cursor} back to {last}");
        cursor = last;
        if reply["still_running"] == false {
            return lines;
        }
        assert!(
            Instant::now() < deadline,
            "{job}: only {} lines at the time limit",
            lines.len()
        );
    }
}

/// Follows a job to its end by its events, and continues after each break.
fn read_events(caller: &Caller, job: &str, deadline: Instant) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    loop {
        let seen = lines.last().map_or(0, |(number, _)| *number).to_string();
        let path = format!("/v1/jobs/{job}/stream");
        let response = until_answered(deadline, job, || {
            caller
                .try_get(&path, &[("Last-Event-ID", &seen)])
                .ok()
                .filter(|response| matches!(response.status().as_u16(), 200 | 204))
        });
        if response.status().as_u16() == 204 {
            return lines;
        }
        for event in events(response) {
            match event.name.as_str() {
                "end" => return lines,
                "dropped" => panic!("{job}: {event:?}"),
                _ if event.data["text"].is_string() => {
                    let number = event.data["line_no"].as_u64().unwrap();
                    lines.push((number, event.data["text"].as_str().unwrap().to_owned()));
                }
                _ => {}
            }
        }
        assert!(
            Instant::now() < deadline,
            "{job}: only {} lines at the time limit",
            lines.len()
        );
    }
}

/// The readers of one job.
pub struct Readers {
    pub job: String,
    pub pages: JoinHandle<Vec<Line>>,
    pub events: JoinHandle<Vec<Line>>,
}

impl Readers {
    pub fn start(job: String, caller: &Caller, deadline: Instant, seed: u64) -> Self {
        let (by_page, by_event) = (caller.clone(), caller.clone());
        let (first, second) = (job.clone(), job.clone());
        Self {
            job,
            pages: std::thread::spawn(move || {
                read_pages(&by_page, &first, deadline, Dice::new(seed))
            }),
            events: std::thread::spawn(move || read_events(&by_event, &second, deadline)),
        }
    }
}

pub fn assert_whole(reader: &str, job: &str, number: usize, lines: &[Line], count: u64) {
    for (expected, (line_no, text)) in (1..).zip(lines) {
        assert_eq!(
            (*line_no, text.as_str()),
            (expected, format!("job {number} line {expected}").as_str()),
            "{reader} of {job}"
        );
    }
    assert_eq!(lines.len() as u64, count, "{reader} of {job}");
}

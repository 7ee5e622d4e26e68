//! The figures of a run: rows of tables and points of curves, printed, as JSON and as pictures.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::plot;

/// Set in a process that measures one part for another.
pub(crate) const OWN_PROCESS: &str = "SSHJOBS_BENCH_OWN_PROCESS";

/// Everything that one run measured. Rows are printed when they are added.
#[derive(Default, Serialize)]
pub(crate) struct Report {
    machine: Machine,
    sections: Vec<Section>,
    curves: Vec<Curve>,
}

/// Where the figures come from.
#[derive(Serialize)]
struct Machine {
    processors: usize,
    kernel: String,
    /// Version of OpenSSH.
    openssh: String,
    /// Seconds since 1970.
    began_at: u64,
}

/// The tables of another process.
#[derive(Deserialize)]
struct Measured {
    sections: Vec<Section>,
}

#[derive(Deserialize, Serialize)]
struct Section {
    title: String,
    rows: Vec<Row>,
}

#[derive(Deserialize, Serialize)]
struct Row {
    what: String,
    ours: String,
    peer: String,
    /// Our figure divided by the peer's, or the peer's by ours; a bar with `≥` means that more is better.
    ratio: Option<f64>,
    bar: String,
}

/// How figures grow with one size.
#[derive(Serialize)]
pub(crate) struct Curve {
    /// Name of its picture, without an extension.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// What grows.
    pub(crate) x: &'static str,
    /// The measured value, with its unit.
    pub(crate) y: &'static str,
    pub(crate) lines: Vec<Line>,
}

/// One line of a curve.
#[derive(Serialize)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

impl Default for Machine {
    fn default() -> Self {
        let told = |program: &str, argument: &str| {
            let output = Command::new(program).arg(argument).output().unwrap();
            // `ssh -V` prints to stderr.
            let text = [output.stdout, output.stderr].concat();
            String::from_utf8_lossy(&text).trim().to_owned()
        };
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        Self {
            processors: std::thread::available_parallelism().unwrap().get(),
            kernel: told("uname", "-r"),
            openssh: told("ssh", "-V"),
            began_at: now.as_secs(),
        }
    }
}

impl Report {
    /// Whether nothing was measured.
    pub(crate) fn is_empty(&self) -> bool {
        self.sections.is_empty() && self.curves.is_empty()
    }

    /// Begins a table.
    pub(crate) fn section(&mut self, title: &str) {
        println!("\n## {title}\n\n| what | sshjobs | peer | ratio | bar |\n|---|---|---|---|---|");
        self.sections.push(Section {
            title: title.to_owned(),
            rows: Vec::new(),
        });
    }

    /// Adds a row to the last table.
    pub(crate) fn row(
        &mut self,
        what: &str,
        ours: &str,
        peer: &str,
        ratio: Option<f64>,
        bar: &str,
    ) {
        let shown = ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
        println!("| {what} | {ours} | {peer} | {shown} | {bar} |");
        self.sections.last_mut().expect("a section").rows.push(Row {
            what: what.to_owned(),
            ours: ours.to_owned(),
            peer: peer.to_owned(),
            ratio,
            bar: bar.to_owned(),
        });
    }

    /// Adds the rows of a part that is measured in a process of its own, because memory that other parts
    /// have freed would hide what this one takes.
    pub(crate) fn rows_of_own_process(&mut self, part: &str) {
        let directory = tempfile::tempdir().unwrap();
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--bench", part])
            .env("SSHJOBS_BENCH_REPORT", directory.path())
            .env(OWN_PROCESS, "1")
            .stdout(Stdio::null())
            .status();
        assert!(status.unwrap().success(), "{part}");
        let json = fs::read(directory.path().join("report.json")).unwrap();
        let sections: Measured = serde_json::from_slice(&json).unwrap();
        for row in sections.sections.into_iter().flat_map(|section| section.rows) {
            self.row(&row.what, &row.ours, &row.peer, row.ratio, &row.bar);
        }
    }

    /// Adds a curve, and prints its points.
    pub(crate) fn curve(&mut self, curve: Curve) {
        println!("\n## {}\n", curve.title);
        for line in &curve.lines {
            let points: Vec<String> =
                line.points.iter().map(|(x, y)| format!("{x}: {y:.3}")).collect();
            println!(
                "- {} ({}; {}): {}",
                line.name,
                curve.x,
                curve.y,
                points.join(", ")
            );
        }
        self.curves.push(curve);
    }

    /// Writes all figures so far to `report.json` in a directory.
    pub(crate) fn write_figures(&self, directory: &Path) {
        fs::create_dir_all(directory).unwrap();
        let json = serde_json::to_string_pretty(self).unwrap();
        fs::write(directory.join("report.json"), json + "\n").unwrap();
    }

    /// Writes a picture of each curve into a directory.
    pub(crate) fn draw_curves(&self, directory: &Path) {
        for curve in &self.curves {
            plot::draw(curve, &directory.join(curve.name).with_extension("svg"));
        }
    }
}

pub(crate) fn millis(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1e3)
}

pub(crate) fn micros(duration: Duration) -> String {
    format!("{:.2} µs", duration.as_secs_f64() * 1e6)
}

/// Median time of a short call, from fifty batches of five milliseconds.
pub(crate) fn time_per_call(mut call: impl FnMut()) -> Duration {
    const BATCH: Duration = Duration::from_millis(5);
    let mut timed = |calls: u32| {
        let began = Instant::now();
        for _ in 0..calls {
            call();
        }
        began.elapsed()
    };
    let mut calls = 1;
    while timed(calls) < BATCH {
        calls *= 2;
    }
    // Divided at the end: a `Duration` has no fractions of a nanosecond.
    median((0..50).map(|_| timed(calls) * 1000).collect()) / calls / 1000
}

/// The time that this percentage of all times does not exceed.
pub(crate) fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() - 1) * percent / 100]
}

pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    percentile(&mut times, 50)
}

pub(crate) fn ratio(one: Duration, other: Duration) -> Option<f64> {
    Some(one.as_secs_f64() / other.as_secs_f64())
}

/// Processor time of this process so far, in seconds.
pub(crate) fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    // utime and stime, in the hundredths of a second that Linux counts in.
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

/// Whether a program is on PATH, or is a path itself.
pub(crate) fn is_installed(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

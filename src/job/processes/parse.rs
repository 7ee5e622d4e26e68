//! Reads what the inspecting script prints.

use std::time::Duration;

use super::process::{Process, Processes, Termios, Transferred};
use super::waiting::{Sleep, is_terminal, waits_for};

/// What the host said of a process.
#[derive(Debug, Default)]
struct Raw {
    pid: u32,
    first: Sample,
    second: Option<Sample>,
    parent: u32,
    state: char,
    /// Time of its start in ticks since the boot.
    started: u64,
    uid: Option<u32>,
    memory_kb: Option<u64>,
    peak_memory_kb: Option<u64>,
    threads: Option<u32>,
    wchan: Option<String>,
    call: Option<u32>,
    target: Option<String>,
    open_files: Option<u32>,
    sockets: Option<u32>,
    command: String,
}

/// What a process has used up to a moment.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    /// Processor time in ticks.
    ticks: u64,
    read: Option<u64>,
    written: Option<u64>,
}

/// Positions in `/proc/PID/stat` behind the name, from 0 (proc(5) counts the state as field 3).
const STATE: usize = 0;
const PARENT: usize = 1;
const USER_TICKS: usize = 11;
const SYSTEM_TICKS: usize = 12;
const STARTED: usize = 19;

impl Processes {
    /// Reads what [`inspect_script`](crate::job::inspect_script) has printed. `None` if the host does not
    /// show its processes, or if the script did not finish.
    pub fn parse(stdout: &str) -> Option<Self> {
        let (_, rest) = stdout.split_once("sshjobs-inspect:begin\n")?;
        let (lines, _) = rest.split_once("\nsshjobs-inspect:end")?;
        let mut reading = Reading::default();
        for line in lines.lines() {
            let (word, values) = line.split_once(' ').unwrap_or((line, ""));
            reading.take(word, values);
        }
        Some(reading.finish())
    }
}

/// The state of reading.
#[derive(Default)]
struct Reading {
    machine: String,
    ticks_per_second: u64,
    /// Seconds since the boot, at the two samples.
    times: Vec<f64>,
    terminal: Option<Termios>,
    processes: Vec<Raw>,
    /// Place of the process that the next lines are about.
    about: Option<usize>,
}

impl Reading {
    fn take(&mut self, word: &str, values: &str) {
        match word {
            "machine" => self.machine = values.to_owned(),
            "ticks" => self.ticks_per_second = values.parse().unwrap_or_default(),
            "terminal" => self.terminal = terminal_modes(values),
            "now" => self.times.extend(values.parse::<f64>().ok()),
            "process" => self.begin(values),
            "again" => self.observe_again(values),
            _ => {
                if let Some(raw) = self.about.and_then(|place| self.processes.get_mut(place)) {
                    raw.take(word, values);
                }
            }
        }
    }

    fn begin(&mut self, values: &str) {
        self.about = None;
        let mut words = values.split(' ');
        let Some(pid) = words.next().and_then(|pid| pid.parse().ok()) else { return };
        let fields: Vec<&str> = words.collect();
        let number = |position: usize| fields.get(position)?.parse::<u64>().ok();
        self.about = Some(self.processes.len());
        self.processes.push(Raw {
            pid,
            first: Sample {
                ticks: ticks(&fields),
                ..Sample::default()
            },
            parent: number(PARENT).and_then(|pid| pid.try_into().ok()).unwrap_or_default(),
            state: fields.get(STATE).and_then(|state| state.chars().next()).unwrap_or('?'),
            started: number(STARTED).unwrap_or_default(),
            ..Raw::default()
        });
    }

    fn observe_again(&mut self, values: &str) {
        let mut words = values.split(' ');
        let pid: Option<u32> = words.next().and_then(|pid| pid.parse().ok());
        self.about = self.processes.iter().position(|raw| Some(raw.pid) == pid);
        let fields: Vec<&str> = words.collect();
        if let Some(raw) = self.about.and_then(|place| self.processes.get_mut(place)) {
            raw.second = Some(Sample {
                ticks: ticks(&fields),
                ..Sample::default()
            });
        }
    }

    fn finish(self) -> Processes {
        let clock = Clock {
            ticks_per_second: self.ticks_per_second.max(1),
            first: self.times.first().copied().unwrap_or_default(),
            second: self.times.get(1).copied().unwrap_or_default(),
        };
        let machine = self.machine;
        Processes {
            processes: self.processes.into_iter().map(|raw| raw.finish(&machine, clock)).collect(),
            terminal: self.terminal,
        }
    }
}

/// The two moments of an observation, in seconds since the boot.
#[derive(Clone, Copy)]
struct Clock {
    ticks_per_second: u64,
    first: f64,
    second: f64,
}

impl Clock {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a time in seconds needs no more"
    )]
    fn seconds(self, ticks: u64) -> f64 {
        ticks as f64 / self.ticks_per_second as f64
    }
}

impl Raw {
    fn take(&mut self, word: &str, values: &str) {
        let number = || values.parse::<u64>().ok();
        let small = || values.parse::<u32>().ok();
        match word {
            "rchar" => self.sample().read = number(),
            "wchar" => self.sample().written = number(),
            "Uid" => self.uid = small(),
            "VmRSS" => self.memory_kb = number(),
            "VmHWM" => self.peak_memory_kb = number(),
            "Threads" => self.threads = small(),
            "wchan" => self.wchan = Some(values.to_owned()).filter(|name| is_function(name)),
            "call" => self.call = values.split(' ').next().and_then(|call| call.parse().ok()),
            "target" => self.target = Some(values.to_owned()),
            "files" => {
                let mut counts = values.split(' ').map(|count| count.parse().ok());
                self.open_files = counts.next().flatten();
                self.sockets = counts.next().flatten();
            }
            "command" => self.command = values.trim_end().to_owned(),
            _ => {}
        }
    }

    fn sample(&mut self) -> &mut Sample {
        self.second.as_mut().unwrap_or(&mut self.first)
    }

    fn finish(self, machine: &str, clock: Clock) -> Process {
        let waits_for = waits_for(Sleep {
            state: self.state,
            machine,
            call: self.call,
            target: self.target.as_deref(),
            wchan: self.wchan.as_deref(),
        });
        let transferred = |sample: Sample| {
            Some(Transferred {
                read: sample.read?,
                written: sample.written?,
            })
        };
        let before = transferred(self.first);
        let after = self.second.and_then(transferred);
        let last = self.second.unwrap_or(self.first);
        let observed = (clock.second - clock.first).max(0.01);
        let busy = clock.seconds(last.ticks.saturating_sub(self.first.ticks));
        let age = clock.first - clock.seconds(self.started);
        Process {
            pid: self.pid,
            parent: self.parent,
            uid: self.uid,
            command: self.command,
            state: self.state,
            cpu: Duration::try_from_secs_f64(clock.seconds(last.ticks)).unwrap_or_default(),
            cpu_percent: (1000.0 * busy / observed).round() / 10.0,
            memory: self.memory_kb.map(|kb| kb << 10),
            peak_memory: self.peak_memory_kb.map(|kb| kb << 10),
            threads: self.threads,
            elapsed: Duration::try_from_secs_f64(age).unwrap_or_default(),
            reads_terminal: waits_for.as_deref().is_some_and(is_terminal),
            waits_for,
            wchan: self.wchan,
            open_files: self.open_files,
            sockets: self.sockets,
            transferred: after.or(before),
            transfer_rate: before.zip(after).map(|(before, after)| Transferred {
                read: per_second(before.read, after.read, observed),
                written: per_second(before.written, after.written, observed),
            }),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is not exact"
)]
fn per_second(before: u64, after: u64, seconds: f64) -> u64 {
    (after.saturating_sub(before) as f64 / seconds).round() as u64
}

/// Whether a process sleeps in this function. The kernel prints 0 for a process that runs, or whose
/// function it hides.
fn is_function(name: &str) -> bool {
    !name.is_empty() && name != "0"
}

fn ticks(fields: &[&str]) -> u64 {
    let of = |position: usize| fields.get(position).and_then(|ticks| ticks.parse::<u64>().ok());
    of(USER_TICKS).unwrap_or_default() + of(SYSTEM_TICKS).unwrap_or_default()
}

/// Modes of a terminal, from what `stty -a` prints.
fn terminal_modes(stty: &str) -> Option<Termios> {
    let is_on = |mode: &str| {
        stty.split([' ', ';']).find_map(|word| match word.strip_prefix('-') {
            Some(off) => (off == mode).then_some(false),
            None => (word == mode).then_some(true),
        })
    };
    Some(Termios {
        lines: is_on("icanon")?,
        echo: is_on("echo")?,
    })
}

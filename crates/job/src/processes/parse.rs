//! Reads the output of the inspecting script.

use std::time::Duration;

use super::awaited::{Awaited, AwaitedFile};
use super::process::{Process, Processes, Termios, Transferred};
use super::waiting::{Sleep, awaited};

/// A process as the script describes it.
#[derive(Debug, Default)]
struct DescribedProcess {
    pid: u32,
    first: Sample,
    second: Option<Sample>,
    parent: u32,
    state: char,
    /// Whether its process group is in the foreground of its terminal.
    is_in_foreground: bool,
    /// Time of its start in ticks since the boot.
    started: u64,
    uid: Option<u32>,
    memory_kb: Option<u64>,
    peak_memory_kb: Option<u64>,
    threads: Option<u32>,
    wchan: Option<String>,
    call: Option<u32>,
    target: Option<String>,
    stdin: Option<String>,
    open_files: Option<u32>,
    sockets: Option<u32>,
    /// Name of the program, at most 15 bytes.
    name: String,
    command: String,
}

/// Figures of a process that only grow.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    /// Seconds since the boot.
    time: f64,
    /// Processor time in ticks.
    ticks: u64,
    read: Option<u64>,
    written: Option<u64>,
}

impl Sample {
    fn transferred(self) -> Option<Transferred> {
        Some(Transferred {
            read: self.read?,
            written: self.written?,
        })
    }
}

/// Positions in `/proc/PID/stat` behind the name, from 0 (proc(5) counts the state as field 3).
const STATE: usize = 0;
const PARENT: usize = 1;
const GROUP: usize = 2;
const FOREGROUND_GROUP: usize = 5;
const USER_TICKS: usize = 11;
const SYSTEM_TICKS: usize = 12;
const STARTED: usize = 19;

impl Processes {
    /// Reads the output of [`inspect_script`](crate::inspect_script). `None` if the host does not
    /// show its processes, or if the script did not finish.
    pub fn parse(stdout: &str) -> Option<Self> {
        let (_, rest) = stdout.split_once("sshjobs-inspect:begin\n")?;
        let (lines, _) = rest.split_once("\nsshjobs-inspect:end")?;
        let mut reading = ParsedLines::default();
        // Not `lines`, which would drop a carriage return of a command.
        for line in lines.split('\n') {
            let (word, values) = line.split_once(' ').unwrap_or((line, ""));
            reading.take(word, values);
        }
        Some(reading.finish())
    }
}

/// The lines read so far.
#[derive(Default)]
struct ParsedLines {
    machine: String,
    ticks_per_second: u64,
    total: usize,
    terminal: Option<Termios>,
    processes: Vec<DescribedProcess>,
    /// Index of the process that the next lines describe.
    current: Option<usize>,
}

impl ParsedLines {
    fn take(&mut self, word: &str, values: &str) {
        match word {
            "machine" => self.machine = values.to_owned(),
            "ticks" => self.ticks_per_second = values.parse().unwrap_or_default(),
            "terminal" => self.terminal = terminal_modes(values),
            "total" => self.total = values.parse().unwrap_or_default(),
            "process" => self.begin(values),
            "again" => self.observe_again(values),
            _ => {
                if let Some(process) = self.current.and_then(|index| self.processes.get_mut(index))
                {
                    process.take(word, values);
                }
            }
        }
    }

    fn begin(&mut self, values: &str) {
        self.current = None;
        let Some((pid, sample, fields)) = usage(values) else { return };
        let group = number(&fields, GROUP).filter(|group| *group > 0);
        self.current = Some(self.processes.len());
        self.processes.push(DescribedProcess {
            pid,
            first: sample,
            parent: number(&fields, PARENT).and_then(|pid| pid.try_into().ok()).unwrap_or_default(),
            state: fields.get(STATE).and_then(|state| state.chars().next()).unwrap_or('?'),
            is_in_foreground: group.is_some() && group == number(&fields, FOREGROUND_GROUP),
            started: number(&fields, STARTED).unwrap_or_default(),
            ..DescribedProcess::default()
        });
    }

    fn observe_again(&mut self, values: &str) {
        self.current = None;
        let Some((pid, sample, _)) = usage(values) else { return };
        self.current = self.processes.iter().position(|process| process.pid == pid);
        if let Some(process) = self.current.and_then(|index| self.processes.get_mut(index)) {
            process.second = Some(sample);
        }
    }

    fn finish(self) -> Processes {
        let machine = self.machine;
        let ticks_per_second = self.ticks_per_second.max(1);
        let processes = self.processes.into_iter();
        Processes {
            processes: processes.map(|one| one.finish(&machine, ticks_per_second)).collect(),
            total: self.total,
            terminal: self.terminal,
        }
    }
}

/// The id of a process, a sample, and the fields of `/proc/PID/stat` from the third on.
fn usage(values: &str) -> Option<(u32, Sample, Vec<&str>)> {
    let mut words = values.split(' ');
    let pid = words.next()?.parse().ok()?;
    let time = words.next()?.parse().ok()?;
    let fields: Vec<&str> = words.collect();
    let user_ticks = number(&fields, USER_TICKS)?;
    let system_ticks = number(&fields, SYSTEM_TICKS)?;
    let sample = Sample {
        time,
        ticks: user_ticks.saturating_add(system_ticks),
        ..Sample::default()
    };
    Some((pid, sample, fields))
}

/// The field at this position, if it is a number.
fn number(fields: &[&str], position: usize) -> Option<u64> {
    fields.get(position)?.parse().ok()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a time in seconds needs no more"
)]
fn seconds(ticks: u64, ticks_per_second: u64) -> f64 {
    ticks as f64 / ticks_per_second as f64
}

impl DescribedProcess {
    fn take(&mut self, word: &str, values: &str) {
        let number = values.parse::<u64>().ok();
        let small_number = values.parse::<u32>().ok();
        match word {
            "rchar" => self.sample().read = number,
            "wchar" => self.sample().written = number,
            "Uid" => self.uid = small_number,
            "VmRSS" => self.memory_kb = number,
            "VmHWM" => self.peak_memory_kb = number,
            "Threads" => self.threads = small_number,
            "wchan" => self.wchan = Some(values.to_owned()).filter(|name| is_function(name)),
            "call" => self.call = values.split(' ').next().and_then(|call| call.parse().ok()),
            "target" => self.target = Some(values.to_owned()),
            "stdin" => self.stdin = Some(values.to_owned()),
            "files" => {
                let mut counts = values.split(' ').map(|count| count.parse().ok());
                self.open_files = counts.next().flatten();
                self.sockets = counts.next().flatten();
            }
            "name" => self.name = values.trim().to_owned(),
            // NUL ends each argument.
            "command" => {
                self.command =
                    values.replace('\u{2}', "\n").trim_end_matches('\u{1}').replace('\u{1}', " ");
            }
            _ => {}
        }
    }

    /// The sample whose lines are being read.
    fn sample(&mut self) -> &mut Sample {
        self.second.as_mut().unwrap_or(&mut self.first)
    }

    fn finish(self, machine: &str, ticks_per_second: u64) -> Process {
        let waits_for = awaited(Sleep {
            stdin: self.stdin.as_deref(),
            is_in_foreground: self.is_in_foreground,
            state: self.state,
            machine,
            call: self.call,
            target: self.target.as_deref(),
            wchan: self.wchan.as_deref(),
        });
        let before = self.first.transferred();
        let after = self.second.and_then(Sample::transferred);
        let last = self.second.unwrap_or(self.first);
        let observed = (last.time - self.first.time).max(0.01);
        let busy = seconds(
            last.ticks.saturating_sub(self.first.ticks),
            ticks_per_second,
        );
        let cpu = seconds(last.ticks, ticks_per_second);
        let age = self.first.time - seconds(self.started, ticks_per_second);
        Process {
            pid: self.pid,
            parent: self.parent,
            uid: self.uid,
            command: if self.command.is_empty() {
                format!("[{}]", self.name)
            } else {
                self.command
            },
            state: self.state,
            cpu: Duration::try_from_secs_f64(cpu).unwrap_or_default(),
            cpu_percent: (1000.0 * busy / observed).round() / 10.0,
            memory: self.memory_kb.map(|kb| kb.saturating_mul(1024)),
            peak_memory: self.peak_memory_kb.map(|kb| kb.saturating_mul(1024)),
            threads: self.threads,
            elapsed: Duration::try_from_secs_f64(age).unwrap_or_default(),
            reads_terminal: waits_for == Some(Awaited::Input(AwaitedFile::Terminal)),
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

/// Modes of a terminal, from the output of `stty -a`.
fn terminal_modes(stty: &str) -> Option<Termios> {
    Some(Termios {
        lines: is_mode_on(stty, "icanon")?,
        echo: is_mode_on(stty, "echo")?,
    })
}

/// Whether a mode is on. `None` if the output does not have it.
fn is_mode_on(stty: &str, mode: &str) -> Option<bool> {
    stty.split([' ', ';']).find_map(|word| match word.strip_prefix('-') {
        Some(off) => (off == mode).then_some(false),
        None => (word == mode).then_some(true),
    })
}

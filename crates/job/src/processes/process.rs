//! Processes of a job, and a sentence about why it is silent.

use std::time::Duration;

use super::awaited::Awaited;

/// The processes of a job at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Processes {
    /// The processes, by id: parents mostly come before their children.
    pub processes: Vec<Process>,
    /// Number of all processes. More than are described if there are many.
    pub total: usize,
    /// Modes of the job's terminal. `None` without one, or if the host does not report them.
    pub terminal: Option<Termios>,
}

/// A process of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Process {
    /// Its id on the host.
    pub pid: u32,
    /// Its parent's id. The parent may be no process of the job.
    pub parent: u32,
    /// Id of its account.
    pub uid: Option<u32>,
    /// The program and its arguments, at most [`LONGEST_COMMAND`] bytes; or else its name in brackets.
    pub command: String,
    /// State of its main thread, as in ps: R runs, S sleeps, D waits for a device, T is stopped.
    pub state: char,
    /// Processor time so far.
    pub cpu: Duration,
    /// Processor time while it was observed, in percent of one core. 0 for a process that ended.
    pub cpu_percent: f64,
    /// Memory in use (resident), in bytes.
    pub memory: Option<u64>,
    /// The most memory that it has used, in bytes.
    pub peak_memory: Option<u64>,
    /// Number of threads.
    pub threads: Option<u32>,
    /// Time since its start.
    pub elapsed: Duration,
    /// The event that it waits for. `None` if it runs, or if the host hides it.
    pub waits_for: Option<Awaited>,
    /// Whether it reads the job's terminal.
    pub reads_terminal: bool,
    /// The kernel function in which it sleeps.
    pub wchan: Option<String>,
    /// Number of open files and sockets.
    pub open_files: Option<u32>,
    /// Number of open sockets.
    pub sockets: Option<u32>,
    /// Bytes that it has read and written so far, from and to anything.
    pub transferred: Option<Transferred>,
    /// Bytes that it read and wrote in a second while it was observed.
    pub transfer_rate: Option<Transferred>,
}

/// Share of a core, in percent, from which a process counts as busy.
const BUSY: f64 = 5.0;
/// Maximum characters of a command in a sentence.
const SHOWN: usize = 60;

/// Maximum bytes of a command that are known.
pub const LONGEST_COMMAND: usize = 400;

impl Processes {
    /// Why the job may be silent, in a sentence.
    pub fn summary(&self) -> String {
        // In a pipeline, the process that waits for no other one is the cause.
        let Some(leaf) = self.leaves().min_by_key(|leaf| leaf.waits_for_another()) else {
            return "the job has no process".to_owned();
        };
        let mut sentences = Vec::new();
        let busiest = self
            .processes
            .iter()
            .max_by(|one, other| one.cpu_percent.total_cmp(&other.cpu_percent));
        if let Some(busy) = busiest.filter(|process| process.cpu_percent >= BUSY) {
            let percent = busy.cpu_percent.round();
            sentences.push(format!("{} uses {percent} % of a core", busy.named()));
        }
        if let Some(stopped) = self.processes.iter().find(|process| process.state == 'T') {
            sentences.push(format!(
                "{} is stopped, and waits for SIGCONT",
                stopped.named()
            ));
        }
        if let Some(reader) = self.processes.iter().find(|process| process.reads_terminal) {
            let is_hidden = self.terminal.is_some_and(|modes| !modes.echo && modes.lines);
            let hint = if is_hidden {
                " and does not show typed keys, as for a password"
            } else {
                ""
            };
            sentences.push(format!(
                "{} waits for input on its terminal{hint}",
                reader.named()
            ));
        }
        if sentences.is_empty() {
            sentences.push(match &leaf.waits_for {
                Some(waits_for) => format!("{} waits for {waits_for}", leaf.named()),
                None if leaf.state == 'R' => format!("{} is running", leaf.named()),
                None => format!("{} waits; the host does not report for what", leaf.named()),
            });
        }
        sentences.join("; ")
    }

    /// The processes that have no child in the job.
    fn leaves(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().filter(|process| !self.has_child(process))
    }

    fn has_child(&self, process: &Process) -> bool {
        self.processes.iter().any(|other| other.parent == process.pid)
    }
}

impl Process {
    /// Whether it waits for another process of a pipeline.
    fn waits_for_another(&self) -> bool {
        self.waits_for.as_ref().is_some_and(Awaited::is_pipe)
    }

    /// The id and the beginning of the command.
    fn named(&self) -> String {
        let shown: String = self.command.chars().take(SHOWN).collect();
        let more = if shown == self.command { "" } else { "…" };
        format!("process {} ({shown}{more})", self.pid)
    }
}

/// Numbers of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transferred {
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
}

/// Modes of a terminal (termios).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Termios {
    /// Programs get whole lines (ICANON). Otherwise a program reads single keys.
    pub lines: bool,
    /// Typed keys are shown (ECHO). Otherwise a program may ask for a password.
    pub echo: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AwaitedFile;

    fn process(pid: u32, parent: u32, waits_for: Option<Awaited>) -> Process {
        Process {
            pid,
            parent,
            command: format!("program{pid}"),
            waits_for,
            ..Process::default()
        }
    }

    fn summary(processes: Vec<Process>) -> String {
        let terminal = Some(Termios {
            lines: true,
            echo: false,
        });
        Processes {
            total: processes.len(),
            processes,
            terminal,
        }
        .summary()
    }

    #[test]
    fn the_summary_names_the_process_that_matters() {
        let shell = process(1, 0, Some(Awaited::Child));
        assert_eq!(
            summary(vec![shell.clone(), process(2, 1, Some(Awaited::Timer))]),
            "process 2 (program2) waits for a timer"
        );
        let busy = Process {
            cpu_percent: 98.7,
            ..process(3, 1, None)
        };
        assert_eq!(
            summary(vec![
                shell.clone(),
                process(2, 1, Some(Awaited::Timer)),
                busy
            ]),
            "process 3 (program3) uses 99 % of a core"
        );
        let pipeline = vec![
            process(5, 1, Some(Awaited::Timer)),
            process(6, 1, Some(Awaited::Input(AwaitedFile::Pipe))),
        ];
        assert_eq!(summary(pipeline), "process 5 (program5) waits for a timer");
        let asking = Process {
            reads_terminal: true,
            ..process(4, 1, Some(Awaited::Input(AwaitedFile::Terminal)))
        };
        assert_eq!(
            summary(vec![shell, asking]),
            "process 4 (program4) waits for input on its terminal and does not show typed keys, as for \
             a password"
        );
        assert_eq!(summary(Vec::new()), "the job has no process");
    }
}

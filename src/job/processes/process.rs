//! What is known of a process.

use std::time::Duration;

/// The processes of a job at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Processes {
    /// The processes, by id: parents mostly come before their children.
    pub processes: Vec<Process>,
    /// Modes of the job's terminal. `None` without one, or if the host does not tell them.
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
    /// The program and its arguments, at most 2000 characters. Empty for a thread of the kernel.
    pub command: String,
    /// State of its main thread, as in ps: R runs, S sleeps, D waits for a device, T is stopped.
    pub state: char,
    /// Processor time so far.
    pub cpu: Duration,
    /// Processor time while it was observed, in percent of one core.
    pub cpu_percent: f64,
    /// Memory in use (resident), in bytes.
    pub memory: Option<u64>,
    /// The most memory that it has used, in bytes.
    pub peak_memory: Option<u64>,
    /// Number of threads.
    pub threads: Option<u32>,
    /// Time since its start.
    pub elapsed: Duration,
    /// What it waits for, in words. `None` if it runs, or if the host does not tell.
    pub waits_for: Option<String>,
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

impl Processes {
    /// Why the job may be silent, in a sentence.
    pub fn summary(&self) -> String {
        let Some(leaf) =
            self.leaves().max_by(|one, other| one.cpu_percent.total_cmp(&other.cpu_percent))
        else {
            return "no process of it is left".to_owned();
        };
        if let Some(reader) = self.processes.iter().find(|process| process.reads_terminal) {
            let is_hidden = self.terminal.is_some_and(|modes| !modes.echo && modes.lines);
            let hint = if is_hidden {
                " and does not show what is typed, as for a password"
            } else {
                ""
            };
            return format!("{} waits for input on its terminal{hint}", reader.named());
        }
        match &leaf.waits_for {
            _ if leaf.cpu_percent >= BUSY => {
                format!(
                    "{} uses {} % of a core",
                    leaf.named(),
                    leaf.cpu_percent.round()
                )
            }
            Some(waits_for) => format!("{} waits for {waits_for}", leaf.named()),
            None => format!("{} does not tell what it waits for", leaf.named()),
        }
    }

    /// The processes that have no child in the job.
    fn leaves(&self) -> impl Iterator<Item = &Process> {
        let has_child =
            |process: &Process| self.processes.iter().any(|other| other.parent == process.pid);
        self.processes.iter().filter(move |process| !has_child(process))
    }
}

impl Process {
    /// The id and the beginning of the command.
    fn named(&self) -> String {
        let command: String = self.command.chars().take(SHOWN).collect();
        format!("process {} ({command})", self.pid)
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
    /// What is typed is shown (ECHO). Otherwise a program may ask for a password.
    pub echo: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, parent: u32, waits_for: Option<&str>) -> Process {
        Process {
            pid,
            parent,
            command: format!("program{pid}"),
            waits_for: waits_for.map(str::to_owned),
            ..Process::default()
        }
    }

    fn summary(processes: Vec<Process>) -> String {
        let terminal = Some(Termios {
            lines: true,
            echo: false,
        });
        Processes {
            processes,
            terminal,
        }
        .summary()
    }

    #[test]
    fn the_summary_names_the_process_that_matters() {
        let shell = process(1, 0, Some("a child"));
        assert_eq!(
            summary(vec![shell.clone(), process(2, 1, Some("a timer"))]),
            "process 2 (program2) waits for a timer"
        );
        let busy = Process {
            cpu_percent: 98.7,
            ..process(3, 1, None)
        };
        assert_eq!(
            summary(vec![shell.clone(), process(2, 1, Some("a timer")), busy]),
            "process 3 (program3) uses 99 % of a core"
        );
        let asking = Process {
            reads_terminal: true,
            ..process(4, 1, Some("input from its terminal"))
        };
        assert_eq!(
            summary(vec![shell, asking]),
            "process 4 (program4) waits for input on its terminal and does not show what is typed, as \
             for a password"
        );
        assert_eq!(summary(Vec::new()), "no process of it is left");
    }
}

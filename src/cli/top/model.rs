use super::output::Output;
use super::prompt::Prompt;
use crate::wire::{JobEntry, JobsReply};

/// What is on the screen.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) jobs: Vec<JobEntry>,
    /// Whether the list that is wanted is there.
    pub(super) is_listed: bool,
    /// How many there are; those listed are the newest.
    pub(super) total: usize,
    /// How many of all run.
    pub(super) running: usize,
    selected: usize,
    /// The fleet whose members are listed.
    pub(super) fleet: Option<String>,
    /// Whether jobs that have ended are left out.
    pub(super) only_running: bool,
    /// Whether the output has the screen for itself.
    pub(super) is_zoomed: bool,
    pub(super) mode: Mode,
    pub(super) output: Output,
    /// What came of the last key.
    pub(super) message: Option<String>,
    /// Changes when another list is wanted.
    list: u64,
}

/// What keys are for.
#[derive(Debug, Default)]
pub(super) enum Mode {
    /// Looking around.
    #[default]
    Browse,
    /// A line is typed.
    Typing(Prompt),
    /// A signal is chosen.
    Signal,
    /// The keys are explained.
    Help,
}

/// What is to be done besides showing something.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// End.
    Quit,
    /// Stop until the shell lets us go on.
    Suspend,
    /// Draw everything anew.
    Redraw,
    /// Write a line to a job's stdin.
    Answer {
        /// The job.
        job: String,
        /// The line, without its end.
        text: String,
    },
    /// Signal a job.
    Signal {
        /// The job.
        job: String,
        /// The signal's name.
        signal: &'static str,
    },
    /// Look for a pattern in a job's output.
    Search {
        /// The job.
        job: String,
        /// The pattern.
        pattern: String,
    },
}

/// Which list is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct List {
    pub(super) number: u64,
    pub(super) fleet: Option<String>,
    pub(super) only_running: bool,
    /// Entries that are enough for the selection and what is around it.
    pub(super) limit: usize,
}

/// Entries that are listed beyond the selected one.
const MARGIN: usize = 200;

impl Model {
    /// The list that is wanted.
    pub(super) fn list(&self) -> List {
        let (fleet, only_running) = (self.fleet.clone(), self.only_running);
        List { number: self.list, fleet, only_running, limit: (self.selected + MARGIN).min(10_000) }
    }

    /// Takes a list of jobs. The selection stays with its job.
    pub(super) fn take(&mut self, list: &List, reply: JobsReply, running: usize) {
        if list.number != self.list {
            return;
        }
        let at = self.output.job().and_then(|id| reply.jobs.iter().position(|job| job.job_id == id));
        (self.jobs, self.total, self.running) = (reply.jobs, reply.total, running);
        self.is_listed = true;
        self.select(at.unwrap_or(self.selected));
    }

    pub(super) fn selected(&self) -> usize {
        self.selected
    }

    pub(super) fn selected_entry(&self) -> Option<&JobEntry> {
        self.jobs.get(self.selected)
    }

    pub(super) fn selected_job(&self) -> Option<String> {
        self.selected_entry().map(|entry| entry.job_id.clone())
    }

    fn select(&mut self, index: usize) {
        self.selected = index.min(self.jobs.len().saturating_sub(1));
        let job = self.selected_job();
        self.output.of(job.as_deref());
    }

    pub(super) fn move_by(&mut self, entries: isize) {
        self.select(self.selected.saturating_add_signed(entries));
    }

    /// Goes into what is selected: a fleet's members, else the output alone.
    pub(super) fn open(&mut self) {
        match self.selected_entry() {
            Some(entry) if entry.members.is_some() && self.fleet.is_none() => {
                self.fleet = Some(entry.job_id.clone());
                self.want_another_list();
            }
            Some(_) => self.is_zoomed = true,
            None => {}
        }
    }

    /// Goes back to where one came from.
    pub(super) fn close(&mut self) {
        if self.is_zoomed {
            self.is_zoomed = false;
        } else if let Some(fleet) = self.fleet.take() {
            self.want_another_list();
            // It will be selected when the list is there.
            self.output.of(Some(&fleet));
        }
    }

    pub(super) fn toggle_running(&mut self) {
        self.only_running = !self.only_running;
        self.want_another_list();
    }

    fn want_another_list(&mut self) {
        self.list += 1;
        (self.jobs, self.total, self.selected) = (Vec::new(), 0, 0);
        self.is_listed = false;
    }
}

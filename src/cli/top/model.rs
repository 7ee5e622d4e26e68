//! State of `top`: the list, the selection, the output and the mode of the keys. It knows
//! neither terminals nor networks.

use super::output::Output;
use super::prompt::Prompt;
use crate::wire::{JobEntry, JobsReply};

/// State of the screen.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) jobs: Vec<JobEntry>,
    /// Whether the requested list has arrived.
    pub(super) is_listed: bool,
    /// Number of jobs. The newest of them are listed.
    pub(super) total: usize,
    /// Number of running jobs.
    pub(super) running: usize,
    selected: usize,
    /// The fleet whose members are listed.
    pub(super) fleet: Option<String>,
    /// Whether ended jobs are hidden.
    pub(super) only_running: bool,
    /// Whether the output fills the screen.
    pub(super) is_zoomed: bool,
    pub(super) mode: Mode,
    pub(super) output: Output,
    /// Result of the last key.
    pub(super) message: Option<String>,
    /// Changes when another list is needed.
    list: u64,
}

/// Meaning of keys.
#[derive(Debug, Default)]
pub(super) enum Mode {
    /// Moving around.
    #[default]
    Browse,
    /// A line is being typed.
    Typing(Prompt),
    /// A signal is being selected.
    Signal,
    /// The keys are explained.
    Help,
}

/// An action outside of the model.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Quit.
    Quit,
    /// Stop until the shell resumes the program.
    Suspend,
    /// Redraw everything.
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
    /// Search a job's output.
    Search {
        /// The job.
        job: String,
        /// The pattern.
        pattern: String,
    },
}

/// The requested list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct List {
    pub(super) number: u64,
    pub(super) fleet: Option<String>,
    pub(super) only_running: bool,
    /// Number of entries: enough for the selection and its surroundings.
    pub(super) limit: usize,
}

/// Number of entries listed after the selected one.
const MARGIN: usize = 200;

impl Model {
    /// The list to request.
    pub(super) fn list(&self) -> List {
        let fleet = self.fleet.clone();
        let only_running = self.only_running;
        List {
            number: self.list,
            fleet,
            only_running,
            // The verb `jobs` clamps a larger limit.
            limit: (self.selected + MARGIN).min(10_000),
        }
    }

    /// Applies a list of jobs. The selection stays on its job.
    pub(super) fn take(&mut self, list: &List, reply: JobsReply, running: usize) {
        // The user has opened or closed a fleet, or changed the filter, since this request.
        if list.number != self.list {
            return;
        }
        // By id, because new jobs at the top change the index of the selected one.
        let at = self
            .output
            .job()
            .and_then(|id| reply.jobs.iter().position(|job| job.job_id == id));
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

    /// Opens the selection: a fleet's members, otherwise the output alone.
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

    /// Goes back.
    pub(super) fn close(&mut self) {
        if self.is_zoomed {
            self.is_zoomed = false;
        } else if let Some(fleet) = self.fleet.take() {
            self.want_another_list();
            // It will be selected when the list arrives.
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

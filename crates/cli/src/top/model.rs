//! State of `top`: the list, the selection, the output and the mode of the keys. It knows
//! neither terminals nor networks.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::output::VisibleOutput;
use super::panel::Panel;
use super::prompt::Prompt;
use super::queue_panel::QueueRows;
use crate::verbs::duration_of;
use sshjobs_wire::{ApprovalEntry, ApproverAnswer, JobEntry, JobKind, JobsReply, QueueRequest};

/// State of the screen.
#[derive(Debug, Default)]
pub(super) struct Model {
    /// The jobs shown: those that pass the filter, in order.
    pub(super) jobs: Vec<JobEntry>,
    /// All jobs of the list, as listed.
    listed: Vec<JobEntry>,
    /// Whether the requested list has arrived.
    pub(super) is_listed: bool,
    /// Number of jobs. The newest of them are listed.
    pub(super) total: usize,
    /// Number of running jobs, also those that wait for input.
    pub(super) running: usize,
    selected: usize,
    /// The fleet whose members are listed.
    pub(super) fleet: Option<String>,
    /// Whether ended jobs are hidden.
    pub(super) only_running: bool,
    /// A word that the jobs shown contain, in any column. Empty if all are shown.
    pub(super) filter: String,
    /// Order of the jobs, after those that wait for input.
    pub(super) order: JobOrder,
    /// Jobs that the next action is for, instead of the selected one.
    pub(super) marked: BTreeSet<String>,
    /// Rows of the screen with the list, as drawn.
    pub(super) list_rows: ListRows,
    /// Whether the output fills the screen.
    pub(super) is_zoomed: bool,
    pub(super) mode: Mode,
    pub(super) output: VisibleOutput,
    /// Lines of the panel, if one is open.
    pub(super) panel_lines: Vec<String>,
    /// Rows of the panel of queues.
    pub(super) queues: QueueRows,
    /// Calls that wait for an approval, as far as this caller sees them.
    pub(super) approvals: Vec<ApprovalEntry>,
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
    /// A signal for these jobs is being selected.
    Signal {
        /// Their ids, as they were when the key was pressed.
        jobs: Vec<String>,
    },
    /// These jobs are about to be deleted.
    Forget {
        /// Their ids, as they were when the key was pressed.
        jobs: Vec<String>,
    },
    /// The keys are explained, from this row on.
    Help {
        /// The first row.
        from: u16,
    },
    /// A panel covers the list and the output.
    Panel(Panel),
}

/// Order of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum JobOrder {
    /// Those that run first, then those in queues, and the newest others.
    #[default]
    Attention,
    /// The newest first.
    Age,
    /// By host.
    Host,
    /// By state.
    State,
    /// The longest first.
    Duration,
    /// Those with the most lines first.
    Lines,
}

impl JobOrder {
    /// The next one, in a circle.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Attention => Self::Age,
            Self::Age => Self::Host,
            Self::Host => Self::State,
            Self::State => Self::Duration,
            Self::Duration => Self::Lines,
            Self::Lines => Self::Attention,
        }
    }

    /// The column by which it sorts.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Attention => "attention",
            Self::Age => "age",
            Self::Host => "host",
            Self::State => "state",
            Self::Duration => "time",
            Self::Lines => "lines",
        }
    }
}

/// Where the list was drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ListRows {
    /// The row of the first job.
    pub(super) first: u16,
    /// Number of rows with jobs.
    pub(super) count: u16,
    /// Index of the first job shown.
    pub(super) offset: usize,
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
    /// Signal jobs.
    Signal {
        /// The jobs.
        jobs: Vec<String>,
        /// The signal's name.
        signal: &'static str,
    },
    /// Delete jobs that have ended.
    Forget {
        /// The jobs.
        jobs: Vec<String>,
    },
    /// Copy a job's id to the clipboard.
    Copy {
        /// The job.
        job: String,
    },
    /// Show a job's whole output in the pager.
    Page {
        /// The job.
        job: String,
    },
    /// Sit in a job's terminal.
    Attach {
        /// The job.
        job: String,
    },
    /// Answer an approval.
    Vote {
        /// Its id.
        id: String,
        /// The answer.
        decision: ApproverAnswer,
    },
    /// Hold, release or move something in a queue.
    Queue(QueueRequest),
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
pub(super) struct ListRequest {
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
    pub(super) fn list(&self) -> ListRequest {
        let fleet = self.fleet.clone();
        let only_running = self.only_running;
        ListRequest {
            number: self.list,
            fleet,
            only_running,
            // The verb `jobs` clamps a larger limit.
            limit: (self.selected + MARGIN).min(10_000),
        }
    }

    /// Applies a list of jobs. The selection stays on its job.
    pub(super) fn take(&mut self, list: &ListRequest, reply: JobsReply, running: usize) {
        // The user has opened or closed a fleet, or changed the filter, since this request.
        if list.number != self.list {
            return;
        }
        self.listed = reply.jobs;
        self.total = reply.total;
        self.running = running;
        self.is_listed = true;
        self.arrange();
    }

    /// Number of jobs that wait for input. The list begins with the jobs that run, so it has all of them.
    pub(super) fn waiting(&self) -> usize {
        self.listed.iter().filter(|job| job.kind() == JobKind::Waiting).count()
    }

    /// Filters and sorts the list. The selection stays on its job.
    pub(super) fn arrange(&mut self) {
        let mut jobs: Vec<JobEntry> =
            self.listed.iter().filter(|job| contains(job, &self.filter)).cloned().collect();
        match self.order {
            JobOrder::Attention => jobs.sort_by_key(JobEntry::attention),
            JobOrder::Age => jobs.sort_by_key(|job| Reverse(job.started_at)),
            JobOrder::Host => jobs.sort_by(|one, other| one.host.cmp(&other.host)),
            JobOrder::State => jobs.sort_by_key(|job| job.standing.state.as_str()),
            JobOrder::Duration => jobs.sort_by_key(|job| Reverse(duration_of(job))),
            JobOrder::Lines => jobs.sort_by_key(|job| Reverse(job.total_lines)),
        }
        // Stable, so that the order stays among the others.
        jobs.sort_by_key(|job| !job.awaiting_input);
        // By id, because new jobs at the top change the index of the selected one.
        let at = self.output.job().and_then(|id| jobs.iter().position(|job| job.job_id == id));
        // An action must not reach a job that the person does not see.
        self.marked.retain(|id| jobs.iter().any(|job| job.job_id == *id));
        self.jobs = jobs;
        self.select(at.unwrap_or(self.selected));
    }

    /// The jobs that an action is for: the marked ones, or the selected one.
    pub(super) fn targets(&self) -> Vec<String> {
        if self.marked.is_empty() {
            self.selected_job().into_iter().collect()
        } else {
            self.marked.iter().cloned().collect()
        }
    }

    /// Marks the selected job, or takes its mark away, and goes to the next one.
    pub(super) fn toggle_mark(&mut self) {
        let Some(job) = self.selected_job() else { return };
        if !self.marked.remove(&job) {
            self.marked.insert(job);
        }
        self.move_by(1);
    }

    /// Selects the job in a row of the screen, if there is one.
    pub(super) fn select_row(&mut self, row: u16) {
        let rows = self.list_rows;
        if let Some(index) = row.checked_sub(rows.first).filter(|index| *index < rows.count) {
            self.select(rows.offset + usize::from(index));
        }
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
        // A terminal job that runs is best understood by its screen.
        let shows_screen = self
            .selected_entry()
            .is_some_and(|entry| entry.pty && !entry.standing.state.is_final());
        self.output.of(job.as_deref(), shows_screen);
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
            self.output.of(Some(&fleet), false);
        }
    }

    pub(super) fn toggle_running(&mut self) {
        self.only_running = !self.only_running;
        self.want_another_list();
    }

    fn want_another_list(&mut self) {
        self.list += 1;
        self.jobs = Vec::new();
        self.listed = Vec::new();
        self.marked = BTreeSet::new();
        self.total = 0;
        self.selected = 0;
        self.is_listed = false;
    }
}

/// Whether a job contains a word in any of its columns, in upper or lower case.
fn contains(job: &JobEntry, word: &str) -> bool {
    let word = word.to_lowercase();
    let label = job.label.as_deref().unwrap_or_default();
    let caller = job.caller.as_deref().unwrap_or_default();
    let state = job.standing.state.as_str();
    [&job.job_id, &job.host, &job.command, label, caller, state]
        .iter()
        .any(|text| text.to_lowercase().contains(&word))
}

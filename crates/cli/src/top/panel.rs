//! Panels of `top`, which cover the list and the output: processes of a job, queued jobs, approvals.

use sshjobs_core::jobs::printable;
use sshjobs_wire::{ApprovalEntry, ApproverAnswer};

/// A view that covers the list and the output.
#[derive(Debug)]
pub(super) struct Panel {
    pub(super) view: PanelView,
    /// The first line shown.
    pub(super) from: u16,
    /// The content as drawn.
    pub(super) drawn: DrawnPanel,
    /// The vote that waits for its confirmation.
    pub(super) vote: Option<ApproverAnswer>,
}

/// The part of its content that a panel has drawn so far.
#[derive(Debug, Default)]
pub(super) struct DrawnPanel {
    /// The view that was drawn.
    pub(super) view: Option<PanelView>,
    /// Number of rows below the last one shown.
    pub(super) rows_below: u16,
    /// Whether the last row was ever shown.
    pub(super) was_at_end: bool,
}

/// Content of a panel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PanelView {
    /// The processes of a job, or why it ended.
    Detail {
        /// The job.
        job: String,
    },
    /// The queues, and all jobs that wait.
    Queue,
    /// One of the approvals that wait, by its id. `None` if there is none.
    Approval(Option<String>),
}

impl PanelView {
    /// The first line of the screen.
    pub(super) fn title(&self, approvals: &[ApprovalEntry]) -> String {
        match self {
            Self::Detail { job } => printable(job),
            Self::Queue => "queues".to_owned(),
            Self::Approval(id) => {
                let at = approvals.iter().position(|entry| Some(&entry.id) == id.as_ref());
                at.map_or_else(
                    || "approvals".to_owned(),
                    |at| format!("approval {} of {}", at + 1, approvals.len()),
                )
            }
        }
    }
}

impl Panel {
    pub(super) fn new(view: PanelView) -> Self {
        Self {
            view,
            from: 0,
            drawn: DrawnPanel::default(),
            vote: None,
        }
    }
}

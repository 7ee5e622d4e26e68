//! The panel of queues: a row for each queue and each job that waits, one of which is selected. Keys hold,
//! release and move it.

use crate::verbs::state_of;
use sshjobs_core::jobs::printable;
use sshjobs_wire::{
    JobEntry, QueueAction, QueueEnd, QueueEntry, QueuePlaceArg, QueueRequest, QueuedJobEntry,
};

/// The keys of the panel, for its last row.
pub(super) const KEYS: &str =
    "↑ ↓ select  h hold  r release  u d up, down  t b first, last  Esc back";

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct QueueRow {
    pub(super) text: String,
    pub(super) of: RowOf,
}

/// The subject of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RowOf {
    /// A queue, by its name.
    Queue(String),
    /// A job in a queue.
    Job {
        id: String,
        /// Its place among those that wait; `None` if it runs or is held.
        place: Option<u64>,
    },
    /// A job in no queue, by its id. Keys can't change it.
    OtherJob(String),
}

/// The rows, and which one is selected.
#[derive(Clone, Debug, Default)]
pub(super) struct QueueRows {
    rows: Vec<QueueRow>,
    selected: usize,
}

impl QueueRows {
    /// Replaces the rows. The selection stays on its queue or job, if that is still there.
    pub(super) fn take(&mut self, rows: Vec<QueueRow>) {
        let selected = self.rows.get(self.selected).map(|row| name_of(&row.of));
        self.rows = rows;
        let at = self.rows.iter().position(|row| Some(name_of(&row.of)) == selected);
        self.selected = at.unwrap_or(self.selected).min(self.rows.len().saturating_sub(1));
    }

    /// Index of the selected row.
    pub(super) fn selected(&self) -> usize {
        self.selected
    }

    pub(super) fn step(&mut self, by: isize) {
        let last = self.rows.len().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(by).min(last);
    }

    pub(super) fn lines(&self) -> Vec<String> {
        if self.rows.is_empty() {
            return vec!["no job is queued".to_owned()];
        }
        let lines = self.rows.iter().enumerate().map(|(index, row)| {
            let mark = if index == self.selected { "▸" } else { " " };
            format!("{mark} {}", row.text)
        });
        lines.collect()
    }

    /// The change that a key of [`KEYS`] makes to the selected row.
    ///
    /// # Errors
    /// Why the key changes nothing.
    pub(super) fn change(&self, key: char) -> Result<QueueRequest, &'static str> {
        let row = self.rows.get(self.selected).ok_or("no job is queued")?;
        let held = |action| match &row.of {
            RowOf::Queue(name) => Ok(QueueRequest {
                action,
                name: Some(name.clone()),
                ..QueueRequest::default()
            }),
            RowOf::Job { id, .. } => Ok(QueueRequest {
                action,
                job_id: Some(id.clone()),
                ..QueueRequest::default()
            }),
            RowOf::OtherJob(_) => Err("it is in no queue: it starts after other jobs"),
        };
        match key {
            'h' => held(QueueAction::Hold),
            'r' => held(QueueAction::Release),
            _ => self.moved(&row.of, key),
        }
    }

    fn moved(&self, of: &RowOf, key: char) -> Result<QueueRequest, &'static str> {
        let RowOf::Job { id, place } = of else {
            return Err("only a job that waits in a queue can be moved");
        };
        let place = match (key, place) {
            ('t', _) => QueuePlaceArg::End(QueueEnd::First),
            ('b', _) => QueuePlaceArg::End(QueueEnd::Last),
            ('u', Some(place)) => QueuePlaceArg::Number(place.saturating_sub(1).max(1)),
            (_, Some(place)) => QueuePlaceArg::Number(place.saturating_add(1)),
            (_, None) => return Err("it has no number: t moves it to the front, b to the end"),
        };
        Ok(QueueRequest {
            action: QueueAction::Move,
            job_id: Some(id.clone()),
            place: Some(place),
            ..QueueRequest::default()
        })
    }
}

/// A name by which a row is found again.
fn name_of(of: &RowOf) -> String {
    match of {
        RowOf::Queue(name) => format!("queue {name}"),
        RowOf::Job { id, .. } | RowOf::OtherJob(id) => format!("job {id}"),
    }
}

/// The rows of queues, and of queued jobs that are in none of them.
pub(super) fn queue_rows(queues: &[QueueEntry], queued: &[JobEntry]) -> Vec<QueueRow> {
    let mut rows: Vec<QueueRow> = queues.iter().flat_map(rows_of_queue).collect();
    let is_in_queue = |job: &JobEntry| {
        let mut jobs = queues.iter().flat_map(|queue| &queue.jobs);
        jobs.any(|known| known.job.job_id == job.job_id)
    };
    // The oldest first, as they are started.
    for job in queued.iter().rev().filter(|job| !is_in_queue(job)) {
        let reason = job.standing.reason.as_deref().unwrap_or("another process starts it");
        rows.push(QueueRow {
            text: printable(&format!("{}  {reason}", in_words(job))),
            of: RowOf::OtherJob(job.job_id.clone()),
        });
    }
    rows
}

fn rows_of_queue(queue: &QueueEntry) -> Vec<QueueRow> {
    let held = if queue.held { ", held" } else { "" };
    let on = if queue.per_host { " on each host" } else { "" };
    let others = match queue.others {
        0 => String::new(),
        others => format!(", and {others} of other callers"),
    };
    let mut rows = vec![QueueRow {
        text: printable(&format!(
            "{}: {} at a time{on}{held}{others}",
            queue.name, queue.parallel
        )),
        of: RowOf::Queue(queue.name.clone()),
    }];
    rows.extend(queue.jobs.iter().map(row_of_job));
    rows
}

fn row_of_job(queued: &QueuedJobEntry) -> QueueRow {
    let place = queued.place.map_or_else(|| "-".to_owned(), |place| format!("#{place}"));
    let state = state_of(&queued.job);
    QueueRow {
        text: printable(&format!(
            "  {place:<4} {state:<10} {}",
            in_words(&queued.job)
        )),
        of: RowOf::Job {
            id: queued.job.job_id.clone(),
            place: queued.place.and_then(|place| u64::try_from(place).ok()),
        },
    }
}

fn in_words(job: &JobEntry) -> String {
    let label = job.label.as_ref().map_or_else(String::new, |label| format!("[{label}] "));
    format!("{}  {}  {label}{}", job.job_id, job.host, job.command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> QueueRows {
        let row = |of| QueueRow {
            text: String::new(),
            of,
        };
        let job = |id: &str, place| {
            row(RowOf::Job {
                id: id.to_owned(),
                place,
            })
        };
        let rows = vec![
            row(RowOf::Queue("deploy".to_owned())),
            job("web1-a", None),
            job("web1-b", Some(1)),
            job("web1-c", Some(2)),
        ];
        QueueRows { rows, selected: 0 }
    }

    #[test]
    fn a_queue_is_held_as_a_whole_and_a_job_by_itself() {
        let mut rows = rows();
        let request = rows.change('h').unwrap();
        assert_eq!(
            (request.action, request.name.as_deref()),
            (QueueAction::Hold, Some("deploy"))
        );
        rows.step(2);
        let request = rows.change('r').unwrap();
        assert_eq!(
            (request.action, request.job_id.as_deref()),
            (QueueAction::Release, Some("web1-b"))
        );
    }

    #[test]
    fn a_job_that_waits_is_moved_by_one_or_to_an_end() {
        let mut rows = rows();
        rows.step(3);
        let places = ['u', 'd', 't', 'b'].map(|key| rows.change(key).unwrap().place);
        assert_eq!(
            places,
            [
                Some(QueuePlaceArg::Number(1)),
                Some(QueuePlaceArg::Number(3)),
                Some(QueuePlaceArg::End(QueueEnd::First)),
                Some(QueuePlaceArg::End(QueueEnd::Last)),
            ]
        );
        rows.step(-2);
        assert!(rows.change('u').is_err(), "a running job has no place");
    }

    #[test]
    fn the_selection_follows_its_job() {
        let mut rows = rows();
        rows.step(3);
        let mut moved = rows.rows.clone();
        moved.swap(2, 3);
        rows.take(moved);
        assert_eq!(rows.selected(), 2);
        rows.take(Vec::new());
        assert_eq!(rows.lines(), ["no job is queued"]);
    }
}

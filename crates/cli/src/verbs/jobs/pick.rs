//! Resolves the words and filters of a command line to job ids.

use std::io::{BufRead, IsTerminal, Write, stderr, stdin};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::args::{FilterArgs, TurnArgs};
use crate::note;
use sshjobs_core::jobs::printable;
use sshjobs_wire::remote::Api;
use sshjobs_wire::{Code, Error, JobEntry, JobsRequest};

/// The word for the newest job.
pub(super) const LAST: &str = "last";
/// Maximum jobs that are looked at.
const MOST_JOBS: i64 = 10_000;
/// Characters of an id after the name of its host.
const RANDOM_CHARS: usize = 8;
/// Jobs that are shown before a question.
const SHOWN: usize = 20;
/// Name of the caller that runs the command line.
const OWN: &str = "local";

/// The id of the job that a word means: an id, the unique start of one, or `last`.
///
/// # Errors
/// If several ids start with it. A word that matches no job is returned unchanged; the verb's own
/// call then reports it.
pub(crate) async fn resolve(api: &Api, word: &str) -> Result<String, Error> {
    // A member of a fleet is FLEET/HOST.
    let (start, member) = match word.split_once('/') {
        Some((start, member)) => (start, Some(member)),
        None => (word, None),
    };
    if is_whole(start) || start.is_empty() {
        return Ok(word.to_owned());
    }
    let request = JobsRequest {
        limit: Some(MOST_JOBS),
        cached: true,
        ..JobsRequest::default()
    };
    let jobs = api.jobs(request).await?.jobs;
    // `last` is one's own: an agent may have started a newer one a moment ago.
    let mut found = jobs.iter().filter(|job| match start {
        LAST => job.caller.is_none(),
        start => job.job_id.starts_with(start),
    });
    let Some(first) = found.next() else { return Ok(word.to_owned()) };
    let others: Vec<&str> = found.map(|job| job.job_id.as_str()).collect();
    if start != LAST && !others.is_empty() {
        let ids: Vec<&str> = [first.job_id.as_str()].into_iter().chain(others).take(5).collect();
        let message = format!("several jobs start with {start:?}");
        let hint = format!("type more of one of them: {}", ids.join(", "));
        return Err(Error::invalid(message, hint));
    }
    Ok(match member {
        Some(member) => format!("{}/{member}", first.job_id),
        None => first.job_id.clone(),
    })
}

/// Resolves the jobs of `--after` and `--after-ok` to their ids.
///
/// # Errors
/// Like [`resolve`].
pub(crate) async fn resolve_turn(api: &Api, turn: &mut TurnArgs) -> Result<(), Error> {
    for word in turn.after.iter_mut().chain(&mut turn.after_ok) {
        *word = resolve(api, word).await?;
    }
    Ok(())
}

/// Whether a word has the form of a whole id, which is not looked up. A word without a digit may
/// also be the name of a host, such as `app-database`.
fn is_whole(word: &str) -> bool {
    word.rsplit_once('-').is_some_and(|(_, random)| {
        random.len() == RANDOM_CHARS
            && random.chars().all(|c| c.is_ascii_alphanumeric())
            && random.contains(|c: char| c.is_ascii_digit())
    })
}

/// The ids of the jobs that words mean; see [`resolve`].
pub(super) async fn resolve_all(api: &Api, words: &[String]) -> Result<Vec<String>, Error> {
    let mut ids = Vec::new();
    for word in words {
        let id = resolve(api, word).await?;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    Ok(ids)
}

/// The jobs that a command line selects: those that are named, or those that pass its filter and
/// are `eligible` for the verb.
pub(super) async fn selected(
    api: &Api,
    words: &[String],
    filter: &FilterArgs,
    eligible: impl Fn(&JobEntry) -> bool,
) -> Result<Vec<String>, Error> {
    if !words.is_empty() && filter.is_set() {
        let hint = "name the jobs, or use --host, --label, --state, --caller, --older or --all";
        return Err(Error::invalid("jobs and a filter are both given", hint));
    }
    if !words.is_empty() {
        return resolve_all(api, words).await;
    }
    let jobs = filtered(api, filter).await?;
    Ok(jobs.into_iter().filter(eligible).map(|job| job.job_id).collect())
}

/// Whether a job has not ended.
pub(super) fn runs(job: &JobEntry) -> bool {
    !job.standing.state.is_final()
}

/// Checks that all of several named jobs exist, before anything is done to the first one: the last
/// word may be a mistyped signal.
///
/// # Errors
/// For the first one that does not exist.
pub(super) async fn check_all(api: &Api, ids: &[String]) -> Result<(), Error> {
    if ids.len() < 2 {
        return Ok(());
    }
    for id in ids {
        api.entry(id).await?;
    }
    Ok(())
}

/// An error of one of several jobs, which it names.
pub(super) fn named(error: Error, id: &str, is_one_of_several: bool) -> Error {
    if is_one_of_several && !error.message.contains(id) {
        Error {
            message: format!("{id}: {}", error.message),
            ..error
        }
    } else {
        error
    }
}

/// The jobs that pass a filter, newest first.
pub(super) async fn filtered(api: &Api, filter: &FilterArgs) -> Result<Vec<JobEntry>, Error> {
    let request = JobsRequest {
        host: filter.host.clone(),
        label: filter.label.clone(),
        state: filter.state,
        limit: Some(MOST_JOBS),
        ..JobsRequest::default()
    };
    // Not from the cache: the same jobs as `sshjobs jobs` shows.
    let mut jobs = api.jobs(request).await?.jobs;
    jobs.retain(|job| passes(job, filter));
    Ok(jobs)
}

/// Whether a job passes the part of a filter that the list itself does not know.
pub(super) fn passes(job: &JobEntry, filter: &FilterArgs) -> bool {
    let is_of_caller = filter
        .caller
        .as_ref()
        .is_none_or(|caller| job.caller.as_deref().unwrap_or(OWN) == caller);
    is_of_caller && filter.older.is_none_or(|least| age_of(job) >= least)
}

/// Time since a job was started.
pub(super) fn age_of(job: &JobEntry) -> Duration {
    let started = UNIX_EPOCH + Duration::from_millis(job.started_at);
    SystemTime::now().duration_since(started).unwrap_or_default()
}

/// The error for a filter that selects no job.
pub(super) fn no_job_passes() -> Error {
    Error::new(
        Code::UnknownJob,
        "no job passes this filter",
        "`sshjobs jobs` with the same filter shows which jobs there are",
    )
}

/// Shows a person what is about to be done to the jobs that a filter selected, and asks. Scripts
/// and `--yes` are not asked.
///
/// # Errors
/// If no job was selected.
pub(super) fn confirm(action: &str, ids: &[String], filter: &FilterArgs) -> Result<bool, Error> {
    if ids.is_empty() {
        return Err(no_job_passes());
    }
    if !filter.is_set() {
        return Ok(true);
    }
    for id in ids.iter().take(SHOWN) {
        note(id);
    }
    if ids.len() > SHOWN {
        note(&format!("and {} more", ids.len() - SHOWN));
    }
    if !stdin().is_terminal() {
        return Ok(true);
    }
    if !stderr().is_terminal() && !filter.yes {
        let hint = "add --yes, or don't redirect stderr";
        return Err(Error::invalid("you can't be asked", hint));
    }
    if filter.yes {
        return Ok(true);
    }
    let jobs = if ids.len() == 1 { "job" } else { "jobs" };
    // Ignored: a closed stderr can't be asked.
    write!(
        stderr(),
        "{} {} {jobs}? [y/N] ",
        printable(action),
        ids.len()
    )
    .ok();
    let mut answer = String::new();
    let is_read = stdin().lock().read_line(&mut answer).is_ok();
    let is_yes = is_read && matches!(answer.trim(), "y" | "Y" | "yes");
    if !is_yes {
        note("nothing was done");
    }
    Ok(is_yes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_id_is_known_by_its_form() {
        for id in ["web1-7f3k9q2m", "fleet-00000000", "web-1.example-7f3k9q2m"] {
            assert!(is_whole(id), "{id}");
        }
        for start in [
            "web1",
            "web1-7f3",
            "last",
            "",
            "web1-7f3k9q2m0",
            "app-database",
        ] {
            assert!(!is_whole(start), "{start}");
        }
    }
}

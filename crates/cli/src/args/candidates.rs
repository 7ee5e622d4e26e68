//! Candidates for shell completion: hosts, tags, jobs and fleets, read with the options already
//! typed.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter};
use tokio::runtime::Builder;

use super::values::{CONFIG_VARIABLE, STATE_DIR_VARIABLE};
use sshjobs_core::jobs::{Access, Filter, Freshness, Jobs, printable};
use sshjobs_wire::load_config;

/// Whether a terminal shows a word as it is. Another one can't be typed either, so it is not offered.
fn is_plain(word: &str) -> bool {
    printable(word) == word
}

/// The names and tags of the listed hosts, as far as a terminal shows them as they are.
fn listed_hosts() -> Vec<(String, Vec<String>)> {
    let names = ask(async |jobs| jobs.host_names().await.unwrap_or_default());
    let plain = names.into_iter().filter(|(name, _)| is_plain(name));
    plain
        .map(|(name, mut tags)| {
            tags.retain(|tag| is_plain(tag));
            (name, tags)
        })
        .collect()
}

/// The listed hosts.
pub(crate) fn hosts() -> Vec<CompletionCandidate> {
    listed_hosts()
        .into_iter()
        .map(|(name, _)| CompletionCandidate::new(name))
        .collect()
}

/// Completions of the last word in a list of hosts: hosts and tags, also after `!`.
pub(crate) fn many_hosts(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else { return Vec::new() };
    let names = listed_hosts();
    let mut tags: Vec<String> = names
        .iter()
        .flat_map(|(_, tags)| tags)
        .map(|tag| format!("tag:{tag}"))
        .collect();
    tags.sort_unstable();
    tags.dedup();
    let all: Vec<String> = names.into_iter().map(|(name, _)| name).chain(tags).collect();
    continued(current, &all).into_iter().map(CompletionCandidate::new).collect()
}

/// Files of this machine, and hosts with a colon, as for scp.
pub(crate) fn local_or_host(current: &OsStr) -> Vec<CompletionCandidate> {
    let mut files = PathCompleter::any().complete(current);
    files.retain(|file| file.get_value().to_str().is_none_or(is_plain));
    let Some(current) = current.to_str() else { return files };
    if current.contains(['/', ':']) {
        return files;
    }
    let hosts = listed_hosts().into_iter().map(|(name, _)| format!("{name}:"));
    let hosts = hosts.filter(|host| host.starts_with(current)).map(CompletionCandidate::new);
    hosts.chain(files).collect()
}

/// The list up to its last word, followed by each of the words that complete it.
fn continued(current: &str, words: &[String]) -> Vec<String> {
    let begun = current.rfind([',', '!']).map_or(0, |mark| mark + 1);
    let (before, begun) = current.split_at(begun);
    let named: Vec<&str> = before.split(',').collect();
    words
        .iter()
        .filter(|word: &&String| word.starts_with(begun) && !named.contains(&word.as_str()))
        .map(|word| format!("{before}{word}"))
        .collect()
}

/// The existing jobs, with their commands.
pub(crate) fn jobs() -> Vec<CompletionCandidate> {
    listed(Filter::default())
}

/// The existing fleets.
pub(crate) fn fleets() -> Vec<CompletionCandidate> {
    let fleets = listed(Filter::default()).into_iter();
    fleets
        .filter(|fleet| fleet.get_value().to_string_lossy().starts_with("fleet-"))
        .collect()
}

fn listed(filter: Filter) -> Vec<CompletionCandidate> {
    let listed =
        ask(async |jobs| jobs.list(filter, Freshness::Recorded).await.unwrap_or_default().0);
    listed
        .into_iter()
        .map(|job: sshjobs_core::jobs::Summary| {
            let about = format!(
                "{} on {}: {}",
                job.status.phase.name(),
                job.facts.host,
                job.facts.command
            );
            CompletionCandidate::new(job.id.as_str()).help(Some(printable(&about).into()))
        })
        .collect()
}

/// Queries jobs with the options on the command line being typed. Returns nothing if the
/// configuration has errors.
fn ask<T: Default>(question: impl AsyncFnOnce(Jobs) -> T) -> T {
    let file = typed("--config").or_else(|| variable(CONFIG_VARIABLE));
    let Ok(mut config) = load_config(file.as_deref()) else {
        return T::default();
    };
    config.ssh_config = typed("--ssh-config").or(config.ssh_config);
    let state_dir = typed("--state-dir").or_else(|| variable(STATE_DIR_VARIABLE));
    config.state_dir = state_dir.or(config.state_dir);
    // This process ends at once, so it must not adopt jobs that it can't follow.
    config.limits.adopts_jobs = false;
    let Ok(runtime) = Builder::new_current_thread().enable_all().build() else {
        return T::default();
    };
    let answer = runtime.block_on(async { question(Jobs::new(config, Access::Listed)).await });
    // Without waiting for blocking tasks: a person waits for the candidates.
    runtime.shutdown_background();
    answer
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

/// The value of an option on the command line being typed, which the shell passes to us.
fn typed(option: &str) -> Option<PathBuf> {
    let words: Vec<String> =
        std::env::args_os().filter_map(|word| word.into_string().ok()).collect();
    let joined = format!("{option}=");
    // Three words, so that a value that is still being completed, the last word, is not used.
    let value = words.windows(3).find_map(|three| match three {
        // bash passes `=` as a word of its own.
        [name, sign, value] if name == option && sign == "=" => Some(value.as_str()),
        [name, value, _] if name == option => Some(value.as_str()),
        [word, ..] => word.strip_prefix(&joined),
        _ => None,
    });
    value.map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_of_a_list_is_completed_and_no_word_repeated() {
        let words = ["web1", "web2", "db1", "tag:db"].map(str::to_owned);
        assert_eq!(continued("we", &words), ["web1", "web2"]);
        assert_eq!(continued("web1,we", &words), ["web1,web2"]);
        assert_eq!(continued("web1,ta", &words), ["web1,tag:db"]);
        assert_eq!(continued("web*,!d", &words), ["web*,!db1"]);
        assert!(continued("x", &words).is_empty());
    }
}

use std::ffi::OsStr;
use std::path::PathBuf;

use clap_complete::engine::CompletionCandidate;
use tokio::runtime::Builder;

use crate::jobs::{Access, Config, Filter, Jobs};

/// Hosts that there are.
pub(super) fn hosts() -> Vec<CompletionCandidate> {
    let names = ask(async |jobs| jobs.host_names().await.unwrap_or_default());
    names.into_iter().map(|(name, _)| CompletionCandidate::new(name)).collect()
}

/// What the last word of a list of hosts may become: hosts and tags, with ! before it, too.
pub(super) fn many_hosts(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else { return Vec::new() };
    let names = ask(async |jobs| jobs.host_names().await.unwrap_or_default());
    let mut tags: Vec<String> =
        names.iter().flat_map(|(_, tags)| tags).map(|tag| format!("tag:{tag}")).collect();
    tags.sort_unstable();
    tags.dedup();
    let all: Vec<String> = names.into_iter().map(|(name, _)| name).chain(tags).collect();
    continued(current, &all).into_iter().map(CompletionCandidate::new).collect()
}

/// A list whose last word is begun, with each of the words that it may become.
fn continued(current: &str, words: &[String]) -> Vec<String> {
    let begun = current.rfind([',', '!']).map_or(0, |mark| mark + 1);
    let (before, begun) = current.split_at(begun);
    let named: Vec<&str> = before.split(',').collect();
    let is_new = |word: &&String| word.starts_with(begun) && !named.contains(&word.as_str());
    words.iter().filter(is_new).map(|word| format!("{before}{word}")).collect()
}

/// Jobs that there are, with what they run.
pub(super) fn jobs() -> Vec<CompletionCandidate> {
    listed(Filter::default())
}

/// Fleets that there are.
pub(super) fn fleets() -> Vec<CompletionCandidate> {
    let fleets = listed(Filter::default()).into_iter();
    fleets.filter(|fleet| fleet.get_value().to_string_lossy().starts_with("fleet-")).collect()
}

fn listed(filter: Filter) -> Vec<CompletionCandidate> {
    let listed = ask(async |jobs| jobs.list(filter).await.unwrap_or_default().0);
    let candidate = |job: crate::jobs::Summary| {
        let about = format!("{} on {}: {}", job.status.phase.name(), job.host, job.command);
        CompletionCandidate::new(job.id.as_str()).help(Some(about.into()))
    };
    listed.into_iter().map(candidate).collect()
}

/// Asks as the command line that is being typed would. Nothing comes of a configuration with mistakes.
fn ask<T: Default>(question: impl AsyncFnOnce(Jobs) -> T) -> T {
    let Ok(mut config) = Config::load(typed("--config").as_deref()) else { return T::default() };
    config.ssh_config = typed("--ssh-config").or(config.ssh_config);
    config.state_dir = typed("--state-dir").or(config.state_dir);
    config.limits.adopts_jobs = false;
    let Ok(runtime) = Builder::new_current_thread().enable_all().build() else { return T::default() };
    let answer = runtime.block_on(async { question(Jobs::new(config, Access::Listed)).await });
    runtime.shutdown_background();
    answer
}

/// The value of an option on the command line that is being typed, which the shell hands to us.
fn typed(option: &str) -> Option<PathBuf> {
    let words: Vec<String> = std::env::args_os().filter_map(|word| word.into_string().ok()).collect();
    let joined = format!("{option}=");
    let value = words.windows(3).find_map(|three| match three {
        // bash makes a word of the sign.
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
    fn the_last_word_of_a_list_goes_on_and_no_word_comes_twice() {
        let words = ["web1", "web2", "db1", "tag:db"].map(str::to_owned);
        assert_eq!(continued("we", &words), ["web1", "web2"]);
        assert_eq!(continued("web1,we", &words), ["web1,web2"]);
        assert_eq!(continued("web1,ta", &words), ["web1,tag:db"]);
        assert_eq!(continued("web*,!d", &words), ["web*,!db1"]);
        assert!(continued("x", &words).is_empty());
    }
}

use clap_complete::engine::CompletionCandidate;
use tokio::runtime::Builder;

use crate::jobs::{Access, Config, Filter, Jobs};

/// Hosts that there are, and their tags.
pub(super) fn hosts() -> Vec<CompletionCandidate> {
    let names = ask(async |jobs| jobs.host_names().await.unwrap_or_default());
    let mut tags: Vec<String> =
        names.iter().flat_map(|(_, tags)| tags).map(|tag| format!("tag:{tag}")).collect();
    tags.sort_unstable();
    tags.dedup();
    names.into_iter().map(|(name, _)| name).chain(tags).map(CompletionCandidate::new).collect()
}

/// Jobs that there are, with what they run.
pub(super) fn jobs() -> Vec<CompletionCandidate> {
    let listed = ask(async |jobs| jobs.list(Filter::default()).await.unwrap_or_default().0);
    let candidate = |job: crate::jobs::Summary| {
        let about = format!("{} on {}: {}", job.status.phase.name(), job.host, job.command);
        CompletionCandidate::new(job.id.as_str()).help(Some(about.into()))
    };
    listed.into_iter().map(candidate).collect()
}

/// Asks as a person would who has set nothing else up. Nothing comes of a configuration with mistakes.
fn ask<T: Default>(question: impl AsyncFnOnce(Jobs) -> T) -> T {
    let Ok(mut config) = Config::load(None) else { return T::default() };
    config.limits.adopts_jobs = false;
    let Ok(runtime) = Builder::new_current_thread().enable_all().build() else { return T::default() };
    let answer = runtime.block_on(async { question(Jobs::new(config, Access::Listed)).await });
    runtime.shutdown_background();
    answer
}

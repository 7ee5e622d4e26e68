//! The hosts of a command line: lists, ranges, `@FILE`, patterns and exclusions become names.

use std::collections::HashSet;
use std::path::Path;

use crate::args::RolloutArgs;
use sshjobs_base::bounded_file::{read_text, read_text_from};
use sshjobs_core::jobs::{FleetSpec, glob_matches, holds_address, words};
use sshjobs_wire::remote::Api;
use sshjobs_wire::{CommandRequest, Error, HostsRequest};

/// Whether a word of the command line may name several hosts.
pub(crate) fn is_meant(word: &str) -> bool {
    // One of several hosts.
    if word.starts_with("any(") || word.starts_with("any:") {
        return false;
    }
    let has_range = word.contains('[') && !holds_address(word);
    has_range || word.contains([',', '{']) || word.starts_with('@') || !FleetSpec::is_plain(word)
}

/// Splits a list of hosts at its commas, and replaces `@FILE` by the lines of the file.
pub(crate) fn split(list: &str) -> Result<Vec<String>, Error> {
    let mut hosts = Vec::new();
    for word in words(list) {
        match word.strip_prefix('@') {
            Some(file) => hosts.extend(listed_in(file)?),
            None => hosts.push(word.to_owned()),
        }
    }
    if hosts.is_empty() {
        return Err(Error::invalid(
            format!("{list:?} names no host"),
            "name hosts with commas between them",
        ));
    }
    Ok(hosts)
}

/// The names of the hosts that words stand for, without duplicates; may be empty. Plain names need
/// not be listed.
pub(crate) async fn named(api: &Api, words: &[String]) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    let mut excluded = HashSet::new();
    for word in &FleetSpec::unfolded(words)? {
        match word.strip_prefix('!') {
            Some(word) => excluded.extend(listed(api, word).await?),
            None if FleetSpec::is_plain(word) => names.push(word.clone()),
            None => names.extend(listed(api, word).await?),
        }
    }
    // `insert` is false for excluded names and, from then on, for repeated ones.
    names.retain(|name| excluded.insert(name.clone()));
    Ok(names)
}

/// The hosts that a word stands for. A plain name stands for itself.
async fn listed(api: &Api, word: &str) -> Result<Vec<String>, Error> {
    if FleetSpec::is_plain(word) {
        return Ok(vec![word.to_owned()]);
    }
    let tag = word.strip_prefix("tag:").map(str::to_owned);
    let is_tag = tag.is_some();
    let request = HostsRequest {
        tag,
        ..HostsRequest::default()
    };
    let hosts = api.hosts(request).await?.hosts;
    let names = hosts.into_iter().map(|host| host.name);
    // The request has already selected by tag.
    Ok(names.filter(|name| is_tag || glob_matches(word, name)).collect())
}

fn listed_in(file: &str) -> Result<Vec<String>, Error> {
    let read = if file == "-" {
        read_text_from(std::io::stdin())
    } else {
        read_text(Path::new(file))
    };
    let text = read.map_err(|error| {
        let message = format!("can't read the hosts in {file}: {error}");
        Error::invalid(
            message,
            "@FILE takes a file with a host on each line; @- reads them from stdin",
        )
    })?;
    let lines = text.lines().map(without_comment);
    Ok(lines.filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

/// A line without its comment. The name of an account may have a `#`, so a comment begins a word.
fn without_comment(line: &str) -> &str {
    let mut parts = line.match_indices('#').map(|(at, _)| line.split_at(at).0);
    let content = parts.find(|before| before.is_empty() || before.ends_with(char::is_whitespace));
    content.unwrap_or(line).trim()
}

/// Splits the host of a request into its list of hosts, if it may name several.
pub(crate) fn on_hosts(
    request: CommandRequest,
    rollout: &RolloutArgs,
) -> Result<CommandRequest, Error> {
    let request = in_steps(request, rollout);
    if !is_meant(&request.host) {
        return Ok(request);
    }
    Ok(CommandRequest {
        hosts: split(&request.host)?,
        host: String::new(),
        ..request
    })
}

/// Sets the roll-out options of a request.
pub(super) fn in_steps(request: CommandRequest, rollout: &RolloutArgs) -> CommandRequest {
    CommandRequest {
        max_parallel: rollout.max_parallel,
        canary: rollout.canary,
        stop_after_failures: rollout.stop_after_failures.map(String::from),
        retry: rollout.retries,
        ..request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_may_name_many_hosts() {
        for (word, is_many) in [
            ("web1", false),
            ("root@web1", false),
            ("::1", false),
            ("web1,web2", true),
            ("web*", true),
            ("tag:db", true),
            ("@hosts", true),
        ] {
            assert_eq!(is_meant(word), is_many, "{word}");
        }
        assert_eq!(
            split("a, b,,tag:c,!d,e[1-2,4]").unwrap(),
            ["a", "b", "tag:c", "!d", "e[1-2,4]"]
        );
        let directory = tempfile::tempdir().unwrap();
        let missing = format!("@{}", directory.path().join("missing").display());
        assert!(split(",").is_err() && split(&missing).is_err());
    }

    #[test]
    fn a_file_has_a_host_on_each_line() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("hosts");
        std::fs::write(&file, "# all\nweb1\n\n web2 # the second\n").unwrap();
        assert_eq!(
            split(&format!("@{},web3", file.display())).unwrap(),
            ["web1", "web2", "web3"]
        );
    }
}

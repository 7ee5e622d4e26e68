//! Steps before a start: choose the host, and send the working tree.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::command::{CommandRequest, gpus};
use crate::Service;
use crate::error::{Code, Error};
use crate::transfer_roots::FoundBelowRoot;
use sshjobs_core::jobs::{Exclusions, HostChoice, SyncOptions, TreeToSend, directory_in_tree};

/// The hosts of a word that stands for one of them: `any(tag:gpu)` or, without characters of a shell, `any:tag:gpu`.
fn hosts_of_any(host: &str) -> Option<Vec<String>> {
    let in_parentheses = host.strip_prefix("any(").and_then(|rest| rest.strip_suffix(')'));
    let words = in_parentheses.or_else(|| host.strip_prefix("any:"))?;
    Some(words.split(',').map(|word| word.trim().to_owned()).collect())
}

impl Service {
    /// Performs a start on the first host that can be reached, if its host word stands for several.
    ///
    /// # Errors
    /// That of the start. If no host can be reached, the one of the last.
    pub(super) async fn on_any<'s, T>(
        &'s self,
        request: CommandRequest,
        start: impl Fn(CommandRequest) -> BoxFuture<'s, Result<T, Error>>,
    ) -> Result<T, Error> {
        let Some(words) = hosts_of_any(&request.host) else {
            return if request.pack {
                Err(Error::invalid(
                    "pack chooses one of several hosts, and none are to choose from",
                    "name several: any(tag:gpu)",
                ))
            } else {
                start(request).await
            };
        };
        if words.iter().any(|word| word.is_empty() || word.starts_with('@')) {
            return Err(Error::invalid(
                format!("{} does not name hosts", request.host),
                "any(…) takes names, patterns, tag:NAME and !NAME, separated by commas",
            ));
        }
        let choice = HostChoice {
            words,
            pack: request.pack,
            gpus: request.gpus.as_deref().map(gpus).transpose()?,
        };
        let candidates = self.jobs.candidates(&choice).await?;
        let mut unreached = Vec::new();
        let mut last = None;
        for host in candidates {
            let on_host = CommandRequest {
                host: host.clone(),
                pack: false,
                chosen_from: Some(request.host.clone()),
                ..request.clone()
            };
            match start(on_host).await {
                Err(error) if error.code == Code::Unreachable => {
                    tracing::info!(host, %error, "it is passed over");
                    unreached.push(host);
                    last = Some(error);
                }
                started => return started,
            }
        }
        let Some(error) = last else {
            return Err(Error::new(
                Code::UnknownHost,
                format!("{} names no host", request.host),
                "`sshjobs hosts` lists the hosts",
            ));
        };
        let message = format!(
            "none of {} can be reached; {}",
            unreached.join(", "),
            error.message
        );
        Err(Error { message, ..error })
    }

    /// Brings the working tree of a request to its hosts. The request then names the tree and its directory.
    ///
    /// # Errors
    /// If the tree can't be sent. Nothing is started.
    pub(super) async fn with_tree(
        &self,
        mut request: CommandRequest,
    ) -> Result<CommandRequest, Error> {
        let Some(word) = request.sync.take() else {
            return if request.exclude.is_empty() {
                Ok(request)
            } else {
                Err(Error::invalid(
                    "exclude leaves out files of a tree, and none is sent",
                    "add sync",
                ))
            };
        };
        if request.template.is_some() {
            return Err(Error::invalid(
                "sync and template are both given",
                "a template has a directory of its own",
            ));
        }
        let tree = self.tree_to_send(&word, std::mem::take(&mut request.exclude))?;
        let hosts = if request.hosts.is_empty() {
            vec![request.host.clone()]
        } else {
            self.jobs.hosts_for_files(&request.hosts).await?
        };
        let sent = self.jobs.send_tree(&hosts, &tree).await?;
        request.cwd = Some(directory_in_tree(&sent, request.cwd.as_deref()));
        request.tree = Some(sent);
        Ok(request)
    }

    /// The tree that `DIR[:PATH]` names.
    fn tree_to_send(&self, word: &str, excluded: Vec<String>) -> Result<TreeToSend, Error> {
        let (source, path) = split_tree(word);
        // A job that is started again from elsewhere gets the same tree.
        let source = std::path::absolute(&source).unwrap_or(source);
        let exclusions = Exclusions::new(excluded.clone())
            .map_err(|error| Error::invalid(error.to_string(), "write it as in a .gitignore"))?;
        let not_a_directory = || {
            Error::invalid(
                format!("sync: {} is not a directory", source.display()),
                "name a directory, and where it goes if it matters: DIR:PATH",
            )
        };
        let tree = TreeToSend {
            local: source.clone(),
            source: source.clone(),
            path,
            options: SyncOptions {
                exclusions,
                dry_run: false,
            },
            excluded,
            guard: None,
        };
        if self.jobs.config().reads_any_directory {
            return if source.is_dir() {
                Ok(tree)
            } else {
                Err(not_a_directory())
            };
        }
        match self.transfer_source(&source)? {
            FoundBelowRoot::File(_) => Err(not_a_directory()),
            FoundBelowRoot::Directory(directory) => Ok(TreeToSend {
                local: directory.path(),
                guard: Some(Arc::new(directory)),
                ..tree
            }),
        }
    }
}

/// `DIR[:PATH]`. A directory may have a colon in its name.
fn split_tree(word: &str) -> (PathBuf, Option<String>) {
    match word.rsplit_once(':') {
        Some((source, path)) if !path.is_empty() && !Path::new(word).is_dir() => {
            (source.into(), Some(path.to_owned()))
        }
        Some(_) | None => (word.into(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_several_hosts_is_written_as_any() {
        let words = |host| hosts_of_any(host).map(|words| words.join(" "));
        assert_eq!(words("any(tag:gpu)").as_deref(), Some("tag:gpu"));
        assert_eq!(
            words("any(web1, web2,!web3)").as_deref(),
            Some("web1 web2 !web3")
        );
        assert_eq!(words("any:tag:gpu").as_deref(), Some("tag:gpu"));
        assert_eq!(words("any"), None);
        assert_eq!(words("web1"), None);
    }

    #[test]
    fn a_tree_has_a_directory_and_perhaps_a_path() {
        assert_eq!(split_tree("src"), ("src".into(), None));
        assert_eq!(
            split_tree("src:build/x"),
            ("src".into(), Some("build/x".to_owned()))
        );
        assert_eq!(split_tree("src:"), ("src:".into(), None));
        let root = tempfile::tempdir().unwrap();
        let with_colon = root.path().join("a:b");
        std::fs::create_dir(&with_colon).unwrap();
        let with_colon = with_colon.display().to_string();
        assert_eq!(split_tree(&with_colon), (with_colon.clone().into(), None));
    }
}

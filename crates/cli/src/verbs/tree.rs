//! The working tree that a command is given: progress while it is sent, and its changes.

use super::files::shown;
use crate::note;
use sshjobs_core::jobs::JobTree;
use sshjobs_wire::TreeEntry;
use sshjobs_wire::remote::Api;

/// Digits of a commit that are shown.
const COMMIT_DIGITS: usize = 10;

/// Performs a start, and draws progress while it sends a tree.
pub(super) async fn while_sending<T>(
    api: &Api,
    sends_tree: bool,
    start: impl Future<Output = T>,
) -> T {
    match api {
        Api::Here(service) if sends_tree => shown(service.library().tree_progress(), start).await,
        Api::Here(_) | Api::There(_) => start.await,
    }
}

/// Reports changes in the tree since the job that is started again.
pub(super) fn note_changes(earlier: Option<&JobTree>, tree: Option<&TreeEntry>) {
    if let (Some(earlier), Some(tree)) = (earlier, tree) {
        note(&changes(earlier, tree));
    }
}

fn changes(earlier: &JobTree, tree: &TreeEntry) -> String {
    if earlier.hash.is_some() && earlier.hash == tree.hash {
        return format!(
            "the tree is that of the earlier job{}",
            at(tree.commit.as_deref())
        );
    }
    if earlier.commit == tree.commit {
        let at = at(tree.commit.as_deref());
        return format!("the tree has other contents than that of the earlier job{at}");
    }
    format!(
        "the tree has changed from commit {} to {}",
        short(earlier.commit.as_deref()),
        short(tree.commit.as_deref())
    )
}

fn at(commit: Option<&str>) -> String {
    commit.map_or_else(String::new, |commit| {
        format!(", at commit {}", short(Some(commit)))
    })
}

fn short(commit: Option<&str>) -> &str {
    match commit {
        Some(commit) => commit.get(..COMMIT_DIGITS).unwrap_or(commit),
        None => "none",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_in_a_tree_is_said() {
        let earlier = |commit: Option<&str>, hash: &str| JobTree {
            commit: commit.map(str::to_owned),
            hash: Some(hash.to_owned()),
            ..JobTree::default()
        };
        let now = TreeEntry {
            path: "~/x".to_owned(),
            commit: Some("0123456789abcdef".to_owned()),
            hash: Some("h".to_owned()),
        };
        for (earlier, said) in [
            (
                earlier(Some("0123456789abcdef"), "h"),
                "the tree is that of the earlier job, at commit 0123456789",
            ),
            (
                earlier(Some("0123456789abcdef"), "g"),
                "the tree has other contents than that of the earlier job, at commit 0123456789",
            ),
            (
                earlier(Some("fedcba9876543210"), "g"),
                "the tree has changed from commit fedcba9876 to 0123456789",
            ),
            (
                earlier(None, "g"),
                "the tree has changed from commit none to 0123456789",
            ),
        ] {
            assert_eq!(changes(&earlier, &now), said);
        }
    }
}

//! Which processes belong to a server. It is read from /proc: elsewhere than on Linux only the server itself is known.

use std::collections::HashMap;
use std::fs;

/// All descendants of a process.
pub(super) fn descendants(root: u32) -> Vec<u32> {
    let parents = parents();
    let mut found = vec![root];
    loop {
        let is_new = |(pid, parent): &(&u32, &u32)| found.contains(parent) && !found.contains(pid);
        let more: Vec<u32> = parents.iter().filter(is_new).map(|(pid, _)| *pid).collect();
        if more.is_empty() {
            found.retain(|pid| *pid != root);
            return found;
        }
        found.extend(more);
    }
}

/// A server's own processes that serve connections; what they started is not among them.
pub(super) fn sessions(server: u32) -> Vec<u32> {
    let is_sshd = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.starts_with("sshd"))
    };
    descendants(server).into_iter().filter(is_sshd).collect()
}

/// Processes that a server on this port started, and that nobody is the parent of any more.
pub(super) fn left_behind(port: u16) -> Vec<u32> {
    let end = format!(" 127.0.0.1 {port}");
    let is_ours =
        |variable: &[u8]| variable.starts_with(b"SSH_CONNECTION=") && variable.ends_with(end.as_bytes());
    let has_ours = |pid: &u32| {
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|environ| environ.split(|byte| *byte == 0).any(is_ours))
    };
    all().filter(has_ours).collect()
}

fn all() -> impl Iterator<Item = u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| process.file_name().to_str()?.parse().ok())
}

fn parents() -> HashMap<u32, u32> {
    let parent = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?))
    };
    all().filter_map(parent).collect()
}

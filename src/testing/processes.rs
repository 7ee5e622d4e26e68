//! Finds the processes of a server in /proc. On systems without /proc, these functions find none.

use std::collections::HashMap;
use std::fs;

/// All descendants of a process.
pub(super) fn descendants(root: u32) -> Vec<u32> {
    let parents = parents();
    let mut found = vec![root];
    loop {
        let more: Vec<u32> = parents
            .iter()
            .filter(|(pid, parent): &(&u32, &u32)| found.contains(parent) && !found.contains(pid))
            .map(|(pid, _)| *pid)
            .collect();
        if more.is_empty() {
            found.retain(|pid| *pid != root);
            return found;
        }
        found.extend(more);
    }
}

/// A server's own processes that serve connections, without the commands that they started.
pub(super) fn sessions(server: u32) -> Vec<u32> {
    descendants(server)
        .into_iter()
        .filter(|pid: &u32| {
            // `sshd`, or `sshd-session` since OpenSSH 9.8.
            fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|comm| comm.starts_with("sshd"))
        })
        .collect()
}

/// Processes started by a server on this port whose parent has ended.
pub(super) fn left_behind(port: u16) -> Vec<u32> {
    // SSH_CONNECTION ends with the server's address and port.
    let end = format!(" 127.0.0.1 {port}");
    all()
        .filter(|pid: &u32| {
            fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| {
                environ.split(|byte| *byte == 0).any(|variable: &[u8]| {
                    variable.starts_with(b"SSH_CONNECTION=") && variable.ends_with(end.as_bytes())
                })
            })
        })
        .collect()
}

fn all() -> impl Iterator<Item = u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| process.file_name().to_str()?.parse().ok())
}

fn parents() -> HashMap<u32, u32> {
    all()
        .filter_map(|pid: u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            Some((
                pid,
                // The process name in parentheses may contain spaces and parentheses itself.
                stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?,
            ))
        })
        .collect()
}

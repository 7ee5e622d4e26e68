//! The program as a shell runs it, beside the servers that `McpClient` starts: with the same state.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Sshd;

/// Configuration that names a cluster, in the directory of the host.
pub const CLUSTER_CONFIG: &str = "cluster.toml";
/// Time limit for one command: what hangs fails.
const PATIENCE: Duration = Duration::from_secs(90);

/// The command, reading and writing nothing yet.
pub fn command(sshd: &Sshd, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sshjobs"));
    // The tests of a cluster write it.
    let of_cluster = sshd.path(CLUSTER_CONFIG);
    if of_cluster.exists() && !arguments.contains(&"--config") {
        command.arg("--config").arg(of_cluster);
    }
    command
        .arg("--ssh-config")
        .arg(sshd.ssh_config())
        .args(arguments)
        .env("XDG_CONFIG_HOME", sshd.path("no-config"))
        .env("XDG_STATE_HOME", sshd.path("state"))
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

/// Runs it to its end.
pub fn sshjobs(sshd: &Sshd, arguments: &[&str]) -> Output {
    let child = command(sshd, arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (pid, (sender, ended)) = (child.id(), std::sync::mpsc::channel());
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    ended
        .recv_timeout(PATIENCE)
        .unwrap_or_else(|_| {
            kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).ok();
            panic!("{arguments:?} did not end in time");
        })
        .unwrap()
}

/// Stdout of a successful command.
pub fn told(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).unwrap()
}

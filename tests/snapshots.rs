//! Output for people, word for word: in a pipe and on a terminal.
//! `SNAPSHOTS=overwrite cargo test --test snapshots` updates the snapshots.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::too_many_lines,
    reason = "tests, with their complete expectations"
)]

use std::process::Command;

use crate::support::Sshd;
use crate::support::command::{command, sshjobs};
use crate::support::tmux::Tmux;
use snapbox::{assert_data_eq, str};

/// Three names of one private sshd, and one at which no server listens.
async fn hosts() -> Sshd {
    let sshd = Sshd::start().await;
    sshd.alias(["db1", "db2"]);
    sshd.append("Host dead\n  HostName 127.0.0.1\n  Port 1\n");
    sshd
}

/// Exit code, stdout and stderr, without the parts that vary.
fn seen(sshd: &Sshd, arguments: &[&str]) -> String {
    let output = sshjobs(sshd, arguments);
    let code = output.status.code().unwrap();
    let (stdout, stderr) = (text(sshd, &output.stdout), text(sshd, &output.stderr));
    format!("exit code {code}\n--- stdout\n{stdout}--- stderr\n{stderr}")
}

fn text(sshd: &Sshd, bytes: &[u8]) -> String {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    text.replace(&sshd.port().to_string(), "PORT")
        .replace(sshd.path("").to_str().unwrap(), "DIR/")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_in_a_pipe() {
    let sshd = hosts().await;
    // One at a time: in the order in which they are named.
    let command = "echo $((1+1)); echo oops >&2; case $0 in *) exit 3;; esac";
    assert_data_eq!(
        seen(&sshd, &["run", "-j1", "web1,db1,db2,dead", "--", command]),
        str![[r#"
exit code 4
--- stdout
web1 | 2
web1 | oops
db1  | 2
db1  | oops
db2  | 2
db2  | oops
--- stderr
db[1-2],web1 (3): exited with status 3, 2 lines
    2
    oops
dead: cannot reach dead at 127.0.0.1 port 1: Connection refused (os error 111)
4 hosts: 3 failed, 1 could not be started

"#]]
    );
    assert_data_eq!(
        seen(
            &sshd,
            &[
                "run",
                "-j1",
                "web1,db1",
                "--stream",
                "stderr",
                "--",
                "echo out; echo err >&2"
            ]
        ),
        str![[r#"
exit code 0
--- stdout
web1 | err
db1  | err
--- stderr
db1,web1 (2): exited with status 0, 2 lines
2 hosts: 2 ok

"#]]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_and_what_to_do() {
    let sshd = hosts().await;
    for (arguments, expected) in [
        (
            &["run", "dead", "--", "true"][..],
            str![[r#"
exit code 255
--- stdout
--- stderr
sshjobs: unreachable: cannot reach dead at 127.0.0.1 port 1: Connection refused (os error 111)
  hint: check that the host is up and the port is right

"#]],
        ),
        (
            &["run", "web1,", "--", "true"],
            str![[r#"
exit code 0
--- stdout
--- stderr
web1: exited with status 0
1 host: 1 ok

"#]],
        ),
        (
            &["run", "nothing*", "--", "true"],
            str![[r#"
exit code 255
--- stdout
--- stderr
sshjobs: unknown_host: "nothing*" matches none of the 4 hosts
  hint: patterns match the names that `sshjobs hosts` lists

"#]],
        ),
        (
            &["tail", "web1-00000000"],
            str![[r#"
exit code 2
--- stdout
--- stderr
sshjobs: unknown_job: no job has the id "web1-00000000"
  hint: `sshjobs jobs` lists the jobs there are

"#]],
        ),
        (
            &["run", "web1", "--env-file", "missing.env", "--", "true"],
            str![[r#"
exit code 2
--- stdout
--- stderr
sshjobs: invalid_argument: can't read missing.env: No such file or directory (os error 2)
  hint: --env-file takes a line NAME=VALUE, without quotes, or NAME for each variable

"#]],
        ),
        (
            &["help", "durabel"],
            str![[r#"
exit code 2
--- stdout
--- stderr
sshjobs: invalid_argument: there is nothing to say about "durabel"
  hint: did you mean "durable"? The topics are exit-codes, waiting, durable, fleets, trust, terminals; a verb is one, too

"#]],
        ),
        (
            &["run", "web1,db1", "-t"],
            str![[r#"
exit code 255
--- stdout
--- stderr
sshjobs: invalid_argument: many hosts share no terminal
  hint: name one host for a terminal, and a command for many

"#]],
        ),
        (
            &["top"],
            str![[r#"
exit code 2
--- stdout
--- stderr
sshjobs: invalid_argument: top needs a terminal
  hint: `sshjobs jobs` and `sshjobs tail -f` need none

"#]],
        ),
    ] {
        assert_data_eq!(seen(&sshd, arguments), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_in_a_pipe() {
    let sshd = hosts().await;
    assert_data_eq!(
        seen(&sshd, &["jobs"]),
        str![[r#"
exit code 0
--- stdout
JOB  HOST  STATE  AGE  TIME  LINES  COMMAND
--- stderr

"#]]
    );
    assert_data_eq!(
        seen(&sshd, &["hosts"]),
        str![[r#"
exit code 0
--- stdout
db1   [..]@127.0.0.1 port PORT  (DIR/ssh_config:10)
db2   [..]@127.0.0.1 port PORT  (DIR/ssh_config:10)
dead  [..]@127.0.0.1 port 1  (DIR/ssh_config:19)
web1  [..]@127.0.0.1 port PORT  (DIR/ssh_config:1)
--- stderr

"#]]
    );
    assert_data_eq!(
        seen(&sshd, &["ping", "web1,dead"]),
        str![[r#"
exit code 255
--- stdout
dead  unreachable: cannot reach dead at 127.0.0.1 port 1: Connection refused (os error 111) (check that the host is up and the port is right)
web1  [..] ms  OpenSSH_[..]  posix
--- stderr
2 hosts: 1 reached, 1 not reached

"#]]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_on_a_terminal() {
    let sshd = hosts().await;
    let arguments = [
        "run",
        "-j1",
        "web1,db1,dead",
        "--",
        "echo 東京; echo oops >&2; sleep 2; exit 3",
    ];
    let line = format!("{} 2>&1", shell_words(&command(&sshd, &arguments)));
    let tmux = Tmux::start(&line, (70, 16));
    tmux.shows(&["0/3 hosts: 1 running, 0 ok, 0 failed"]).await;
    tmux.shows(&["ended with 3"]).await;
    assert_data_eq!(
        text(
            &sshd,
            tmux.coloured().trim_end().replace('\x1b', "ESC").as_bytes()
        ),
        str![[r#"
ESC[36mweb1 |ESC[39m 東京
ESC[36mweb1 |ESC[39m ESC[31moops
ESC[33mdb1  |ESC[39m 東京
ESC[33mdb1  |ESC[39m ESC[31moops
db1,web1 (2): exited with status 3ESC[39m, 2 lines
    東京
    oops
ESC[31mdead: cannot reach dead at 127.0.0.1 port 1: Connection refused (os er
ror 111)
ESC[39m3 hosts: ESC[31m2 failedESC[39m, ESC[31m1 could not be started
ESC[39mended with 3
"#]]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn colours_are_where_they_are_wanted() {
    let sshd = hosts().await;
    let run = |options: &[&str], env: &[(&str, &str)]| {
        let words = [options, &["run", "web1,db1", "-j1", "--", "echo err >&2"]].concat();
        let output = command(&sshd, &words)
            .envs(env.iter().copied())
            .stdout(std::process::Stdio::piped())
            .output();
        String::from_utf8(output.unwrap().stdout).unwrap().contains('\x1b')
    };
    assert!(!run(&[], &[]), "a pipe has none");
    assert!(run(&["--color", "always"], &[]) && run(&[], &[("CLICOLOR_FORCE", "1")]));
    assert!(!run(&["--color", "never"], &[("CLICOLOR_FORCE", "1")]));
    assert!(!run(&[], &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
}

/// A command for a shell.
fn shell_words(command: &Command) -> String {
    let quoted =
        |word: &std::ffi::OsStr| format!("'{}'", word.to_str().unwrap().replace('\'', r"'\''"));
    let env = command
        .get_envs()
        .filter_map(|(name, value)| Some(format!("{}={}", name.to_str()?, quoted(value?))));
    let words = std::iter::once(command.get_program()).chain(command.get_args()).map(quoted);
    env.chain(words).collect::<Vec<_>>().join(" ")
}

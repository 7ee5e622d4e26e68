use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use super::*;
use crate::Signal;

const AGE: Duration = Duration::from_secs(60);

/// A job as sshd would start it: the leader of a group of its own, marked.
fn job(command: &str) -> (Child, ProcessGroup) {
    let mark = Nonce::new();
    let mut child = Command::new("/bin/sh")
        .args(["-c", &format!("{command}\necho ready; wait")])
        .env("SSHJOBS_JOB", mark.as_str())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pgid = child.id();
    (
        child,
        ProcessGroup {
            pgid,
            mark,
            age: AGE,
        },
    )
}

fn end(group: &ProcessGroup, signal: Signal, grace: Option<Duration>) -> KillReport {
    let script = kill_script(
        std::slice::from_ref(group),
        Reach::Tree,
        Kill::new(signal, grace),
    );
    let output = Command::new("/bin/sh").args(["-c", &script]).output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let report = KillReport::parse(&stdout).unwrap_or_else(|| panic!("no report in {stdout:?}"));
    without_strangers(report)
}

/// The report as it would be if nothing else ran. Tests that run at the same time leave processes
/// that hide their environment, and an ordinary user can't see whose they are.
fn without_strangers(report: KillReport) -> KillReport {
    let is_root = nix::unistd::getuid().is_root();
    if !is_root && report.left == Left::Hidden {
        KillReport {
            left: Left::Nothing,
            ..report
        }
    } else {
        report
    }
}

const DEAD: KillReport = KillReport {
    delivered: true,
    left: Left::Nothing,
};

#[test]
fn the_whole_group_is_ended() {
    let (mut child, group) = job("sleep 100 & sleep 100 &");
    assert_eq!(end(&group, Signal::TERM, None), DEAD);
    child.wait().unwrap();
}

#[test]
fn a_process_that_left_the_group_is_found_by_its_mark() {
    let (mut child, group) = job("setsid sleep 100 & sleep 0.2");
    assert_eq!(end(&group, Signal::TERM, None), DEAD);
    child.wait().unwrap();
}

#[test]
fn what_ignores_the_signal_is_killed_after_the_grace() {
    let (mut child, group) = job("trap '' TERM; sleep 100 &");
    assert_eq!(
        end(&group, Signal::TERM, Some(Duration::from_millis(200))),
        DEAD
    );
    child.wait().unwrap();
}

#[test]
fn on_a_host_that_lists_its_processes_slowly_the_grace_is_no_longer() {
    let programs = tempfile::tempdir().unwrap();
    let listed = programs.path().join("listed");
    let slow_awk = programs.path().join("awk");
    let script = format!(
        "#!/bin/sh\necho >> '{}'\nsleep 0.5\nPATH=${{PATH#*:}}; exec awk \"$@\"\n",
        listed.display()
    );
    std::fs::write(&slow_awk, script).unwrap();
    std::fs::set_permissions(&slow_awk, Permissions::from_mode(0o755)).unwrap();

    let (mut child, group) = job("trap '' TERM; sleep 100 &");
    let grace = Duration::from_secs(3);
    let script = kill_script(
        std::slice::from_ref(&group),
        Reach::Tree,
        Kill::new(Signal::TERM, Some(grace)),
    );
    let path = std::env::var("PATH").unwrap();
    let output = Command::new("/bin/sh")
        .args(["-c", &script])
        .env("PATH", format!("{}:{path}", programs.path().display()))
        .output()
        .unwrap();
    let report = KillReport::parse(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(report.map(without_strangers), Some(DEAD));
    // Thirty lists for the grace alone would take fifteen seconds.
    let lists = std::fs::read_to_string(listed).unwrap().lines().count();
    assert!(lists < 20, "{lists} lists");
    child.wait().unwrap();
}

#[test]
fn a_process_that_survives_is_not_reported_dead() {
    let (mut child, group) = job("trap '' TERM; sleep 100 &");
    assert_eq!(
        end(&group, Signal::TERM, None),
        KillReport {
            delivered: true,
            left: Left::Alive
        }
    );
    assert_eq!(end(&group, Signal::KILL, None), DEAD);
    child.wait().unwrap();
}

#[test]
fn many_jobs_are_ended_in_one_go() {
    let (mut children, groups): (Vec<_>, Vec<_>) =
        (0..20).map(|_| job("setsid sleep 100 & sleep 100 &")).unzip();
    let script = kill_script(
        &groups,
        Reach::Tree,
        Kill::new(Signal::TERM, Some(Duration::from_secs(5))),
    );
    let output = Command::new("/bin/sh").args(["-c", &script]).output().unwrap();
    assert_eq!(
        KillReport::parse(&String::from_utf8(output.stdout).unwrap()),
        Some(DEAD)
    );
    children.iter_mut().for_each(|child| drop(child.wait()));
}

#[test]
fn after_the_end_only_marked_processes_are_reached() {
    let (mut child, group) = job("sleep 100 &");
    let foreign = ProcessGroup {
        pgid: group.pgid,
        mark: Nonce::new(),
        age: AGE,
    };
    let script = |group: &ProcessGroup| {
        kill_script(
            std::slice::from_ref(group),
            Reach::Marked,
            Kill::new(Signal::TERM, None),
        )
    };
    let run = |script: String| {
        let output = Command::new("/bin/sh").args(["-c", &script]).output().unwrap();
        KillReport::parse(&String::from_utf8(output.stdout).unwrap()).map(without_strangers)
    };
    assert_eq!(
        run(script(&foreign)),
        Some(KillReport {
            delivered: false,
            left: Left::Nothing
        })
    );
    assert!(
        child.try_wait().unwrap().is_none(),
        "the other process group was left alone"
    );
    assert_eq!(run(script(&group)), Some(DEAD));
    child.wait().unwrap();
}

#[test]
fn a_group_that_is_gone_gets_nothing() {
    let (mut child, group) = job("true");
    child.wait().unwrap();
    assert_eq!(
        end(&group, Signal::TERM, None),
        KillReport {
            delivered: false,
            left: Left::Nothing
        }
    );
}

/// A group whose leader runs `command`, without any mark.
fn stranger(command: &str) -> Child {
    Command::new("/bin/sh")
        .args(["-c", command])
        .env_clear()
        .process_group(0)
        .spawn()
        .unwrap()
}

fn is_alive(child: &mut Child) -> bool {
    child.try_wait().unwrap().is_none()
}

#[test]
fn a_group_without_the_mark_is_left_alone_and_not_called_dead() {
    let mut stranger = stranger("sleep 100; true");
    let forged = ProcessGroup {
        pgid: stranger.id(),
        mark: Nonce::new(),
        age: AGE,
    };
    for signal in [Signal::TERM, Signal::KILL] {
        let report = end(&forged, signal, Some(Duration::from_millis(100)));
        assert_eq!(
            report,
            KillReport {
                delivered: false,
                left: Left::Unmarked
            }
        );
    }
    assert!(is_alive(&mut stranger), "the other process was killed");
    Command::new("kill")
        .args(["-KILL", "--", &format!("-{}", stranger.id())])
        .status()
        .unwrap();
    stranger.wait().unwrap();
}

#[test]
fn a_member_without_mark_and_ancestry_is_spared_when_the_rest_of_its_group_is_ended() {
    // Reparented, in the group, and with an environment of its own: nothing shows to which job it
    // belongs.
    let (mut child, group) = job("(env -i sleep 100 &) ; sleep 100 &");
    // Until it is `sleep`, it still has the environment of the shell, and with it the mark.
    wait_for_sleepers(&group, 2);
    let report = end(&group, Signal::KILL, None);
    assert_eq!(
        report,
        KillReport {
            delivered: true,
            left: Left::Unmarked
        }
    );
    child.wait().unwrap();
    Command::new("kill")
        .args(["-KILL", "--", &format!("-{}", group.pgid)])
        .status()
        .unwrap();
}

#[test]
fn a_child_without_the_mark_is_the_jobs_by_its_ancestry() {
    let (mut child, group) = job("env -i setsid sleep 100 &");
    assert_eq!(end(&group, Signal::TERM, None), DEAD);
    child.wait().unwrap();
}

#[test]
fn a_login_shell_that_runs_nothing_else_is_known_by_its_command_line() {
    let mark = Nonce::new();
    let command = format!(
        "SSHJOBS_JOB={}; export SSHJOBS_JOB; while :; do :; done",
        mark.as_str()
    );
    let mut child =
        Command::new("/bin/sh").args(["-c", &command]).process_group(0).spawn().unwrap();
    let group = ProcessGroup {
        pgid: child.id(),
        mark,
        age: AGE,
    };
    assert_eq!(end(&group, Signal::TERM, None), DEAD);
    child.wait().unwrap();
}

#[test]
fn a_process_name_with_line_ends_forges_no_entry() {
    let mut stranger = stranger("sleep 100; true");
    let (mut child, group) = job("sleep 100 &");
    // As a line of its own it would claim that the stranger's parent is the job's leader.
    let name = format!("\nPPid:\t{}\n", group.pgid);
    let forger = format!("printf '{name}' > /proc/self/comm; sleep 100; true");
    let mut forger =
        Command::new("/bin/sh").args(["-c", &forger]).process_group(0).spawn().unwrap();
    assert_eq!(end(&group, Signal::TERM, None), DEAD);
    assert!(is_alive(&mut stranger) && is_alive(&mut forger));
    for child in [&mut stranger, &mut forger] {
        Command::new("kill")
            .args(["-KILL", "--", &format!("-{}", child.id())])
            .status()
            .unwrap();
        child.wait().unwrap();
    }
    child.wait().unwrap();
}

/// A shell of an ordinary account, because root sees all processes.
fn as_nobody(script: &str) -> Command {
    as_account(65534, script)
}

/// Like [`as_nobody`], with an account of its own, so that parallel tests don't see each other's
/// processes.
fn as_account(uid: u32, script: &str) -> Command {
    let is_root = nix::unistd::getuid().is_root();
    let mut command = Command::new(if is_root { "setpriv" } else { "env" });
    if is_root {
        command.args([
            &format!("--reuid={uid}"),
            &format!("--regid={uid}"),
            "--clear-groups",
        ]);
    }
    command.args(["/bin/sh", "-c", script]);
    command
}

#[test]
fn a_zombie_does_not_count_as_hidden() {
    let mark = Nonce::new();
    // The shell leaves its child to a program that never reaps it.
    let mut parent = as_account(65533, "sleep 0.3 & echo $!; exec sleep 100")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut zombie = String::new();
    BufReader::new(parent.stdout.take().unwrap()).read_line(&mut zombie).unwrap();
    let status = format!("/proc/{}/status", zombie.trim_end());
    while !std::fs::read_to_string(&status).unwrap().contains("State:\tZ") {
        std::thread::yield_now();
    }

    let group = ProcessGroup {
        pgid: 0,
        mark,
        age: AGE,
    };
    let script = kill_script(&[group], Reach::Marked, Kill::new(Signal::TERM, None));
    let output = as_account(65533, &script).output().unwrap();
    parent.kill().unwrap();
    parent.wait().unwrap();

    let report = KillReport::parse(&String::from_utf8(output.stdout).unwrap()).unwrap();
    assert_eq!(
        without_strangers(report),
        KillReport {
            delivered: false,
            left: Left::Nothing
        }
    );
}

#[test]
fn a_process_that_hides_its_environment_is_not_called_dead() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(
        directory.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .unwrap();
    let agent = directory.path().join("agent");
    let mark = Nonce::new();
    // It leaves the tree, and hides its environment.
    let command = format!(
        "ssh-agent -a {} > {}.out; sleep 100",
        agent.display(),
        agent.display()
    );
    let mut child = as_nobody(&command)
        .env("SSHJOBS_JOB", mark.as_str())
        .process_group(0)
        .spawn()
        .unwrap();
    let told = directory.path().join("agent.out");
    while !std::fs::read_to_string(&told).unwrap_or_default().contains("echo Agent pid") {
        std::thread::yield_now();
    }
    let group = ProcessGroup {
        pgid: child.id(),
        mark,
        age: AGE,
    };
    let script = kill_script(&[group], Reach::Tree, Kill::new(Signal::KILL, None));
    let output = as_nobody(&script).output().unwrap();
    let report = KillReport::parse(&String::from_utf8(output.stdout).unwrap()).unwrap();
    child.wait().unwrap();
    let told = std::fs::read_to_string(told).unwrap();
    let pid = told.split_once("SSH_AGENT_PID=").unwrap().1.split(';').next().unwrap();
    Command::new("kill").args(["-KILL", pid]).status().unwrap();
    assert_eq!(
        report,
        KillReport {
            delivered: true,
            left: Left::Hidden
        }
    );
}

/// Waits until this many processes of a group are `sleep`.
fn wait_for_sleepers(group: &ProcessGroup, count: usize) {
    for _ in 0..1000 {
        let found = Command::new("pgrep")
            .args(["-x", "-g", &group.pgid.to_string(), "sleep"])
            .output()
            .unwrap();
        if String::from_utf8_lossy(&found.stdout).lines().count() == count {
            return;
        }
        Command::new("sleep").arg("0.02").status().unwrap();
    }
    panic!("they don't start");
}

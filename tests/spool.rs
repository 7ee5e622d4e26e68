//! The script of durable jobs by itself, as a host runs it: what it promises whoever asks, and however often.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use support::eventually;

/// A host's state directory, with the script in its place.
struct Host(tempfile::TempDir);

impl Host {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        std::fs::create_dir_all(directory.path().join("spool").join(machine.trim()).join("f")).unwrap();
        std::fs::write(directory.path().join("spool/script"), include_str!("../src/spool/spool.sh")).unwrap();
        Self(directory)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    fn spool(&self, job: &str) -> PathBuf {
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        self.path("spool").join(machine.trim()).join(job)
    }

    fn start(&self) -> Child {
        Command::new("/bin/sh")
            .arg(self.path("spool/script"))
            .arg(self.0.path())
            .arg("start")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }
}

fn order(job: &str, command: &str) -> String {
    format!("{job} - closed 0 30 0 none 20\nmark-of-a-test\n\n{command}\n\n\n.\n")
}

async fn ended(spool: &Path) -> String {
    eventually("the job has ended", async || spool.join("exit").exists()).await;
    std::fs::read_to_string(spool.join("exit")).unwrap().split(' ').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_job_that_is_asked_for_by_many_at_once_and_again_later_runs_once() {
    let host = Host::new();
    let ran = host.path("ran");
    let text = order("once", &format!("echo ran >> {}; exit 3", ran.display()));
    let ask = |mut child: Child| {
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        child
    };
    let askers: Vec<Child> = (0..8).map(|_| ask(host.start())).collect();
    for mut asker in askers {
        let mut told = String::new();
        asker.stdout.take().unwrap().read_to_string(&mut told).unwrap();
        asker.wait().unwrap();
        assert_eq!(told, "sshjobs-spool ok\n");
    }
    assert_eq!(ended(&host.spool("once")).await, "3");
    assert!(ask(host.start()).wait().unwrap().success());
    assert_eq!(std::fs::read_to_string(ran).unwrap(), "ran\n");
}

#[tokio::test]
async fn asking_again_for_a_job_that_runs_changes_nothing() {
    let host = Host::new();
    let (spool, go) = (host.spool("running"), host.path("go"));
    let text = order("running", &format!("while ! [ -e {} ]; do sleep 0.05; done; exit 6", go.display()));
    let ask = || {
        let mut child = host.start();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    };
    ask();
    eventually("it runs", async || spool.join("pid").exists()).await;
    let supervisor = std::fs::read_to_string(spool.join("sup")).unwrap();
    // What the claim is for: neither the claim nor an order that is still there makes it start again.
    std::fs::write(spool.join("order"), "mark-of-a-test\n\nexit 7\n\n").unwrap();
    ask();
    let mut second = Command::new("setsid")
        .args(["-w", "/bin/sh"])
        .arg(host.path("spool/script"))
        .arg(host.0.path())
        .args(["supervise", "running", "-", "closed", "0", "30", "0", "none", "20"])
        .spawn()
        .unwrap();
    second.wait().unwrap();
    assert_eq!(std::fs::read_to_string(spool.join("sup")).unwrap(), supervisor);
    std::fs::write(go, "").unwrap();
    assert_eq!(ended(&spool).await, "6");
}

#[tokio::test]
async fn a_start_whose_asker_has_gone_comes_to_its_end() {
    let host = Host::new();
    let mut child = host.start();
    // Nobody will read the answer: whoever says it gets SIGPIPE.
    drop(child.stdout.take());
    child.stdin.take().unwrap().write_all(order("alone", "exit 4").as_bytes()).unwrap();
    child.wait().unwrap();
    assert_eq!(ended(&host.spool("alone")).await, "4");
}

#[tokio::test]
async fn a_start_that_was_killed_before_its_supervisor_began_is_finished_by_the_next() {
    let host = Host::new();
    let spool = host.spool("half");
    // What a start leaves that was killed between laying down the order and starting the supervisor.
    std::fs::create_dir(&spool).unwrap();
    for (file, text) in
        [("order", "mark-of-a-test\n\nexit 5\n\n"), ("mark", "mark-of-a-test\n"), ("out", ""), ("err", "")]
    {
        std::fs::write(spool.join(file), text).unwrap();
    }
    std::fs::write(spool.join("exit.r"), format!("{:<200}\n", "pending")).unwrap();
    let mut child = host.start();
    child.stdin.take().unwrap().write_all(order("half", "exit 5").as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(ended(&spool).await, "5");
}

//! The script of durable jobs by itself, as a host runs it: its promises to callers, however often
//! they call.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{eventually, exit_of};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A host's state directory, with the script in its place.
struct Host(tempfile::TempDir);

impl Host {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        std::fs::create_dir_all(directory.path().join("spool").join(machine.trim()).join("f"))
            .unwrap();
        std::fs::write(
            directory.path().join("spool/script"),
            include_str!("../crates/job/src/spool/spool.sh"),
        )
        .unwrap();
        Self(directory)
    }

    /// A host whose home directory has a space in its name.
    fn with_space() -> Self {
        let host = Self::new();
        let spaced = tempfile::Builder::new().prefix("a b").tempdir().unwrap();
        std::fs::rename(host.path("spool"), spaced.path().join("spool")).unwrap();
        Self(spaced)
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
    format!("{job} - closed 0 30 0 none 20 -\nmark-of-a-test\n\n{command}\n\n\n\n.\n")
}

async fn ended(spool: &Path) -> String {
    eventually("the job has ended", async || spool.join("exit").exists()).await;
    std::fs::read_to_string(spool.join("exit"))
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .to_owned()
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
    let text = order(
        "running",
        &format!(
            "while ! [ -e {} ]; do sleep 0.05; done; exit 6",
            go.display()
        ),
    );
    let ask = || {
        let mut child = host.start();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    };
    ask();
    eventually("it runs", async || spool.join("pid").exists()).await;
    let supervisor = std::fs::read_to_string(spool.join("sup")).unwrap();
    // The purpose of the claim: neither the claim nor a remaining order makes it start again.
    std::fs::write(spool.join("order"), "mark-of-a-test\n\nexit 7\n\n").unwrap();
    ask();
    let mut second = Command::new("setsid")
        .args(["-w", "/bin/sh"])
        .arg(host.path("spool/script"))
        .arg(host.0.path())
        .args([
            "supervise",
            "running",
            "-",
            "closed",
            "0",
            "30",
            "0",
            "none",
            "20",
        ])
        .spawn()
        .unwrap();
    second.wait().unwrap();
    assert_eq!(
        std::fs::read_to_string(spool.join("sup")).unwrap(),
        supervisor
    );
    std::fs::write(go, "").unwrap();
    assert_eq!(ended(&spool).await, "6");
}

#[tokio::test]
async fn the_result_of_the_gate_is_waited_for_when_its_file_is_still_empty() {
    let host = Host::new();
    // A start that another shell has begun, at the moment when it makes the file of the result.
    let spool = host.spool("gated");
    std::fs::create_dir_all(&spool).unwrap();
    for file in ["exit.r", "claim", "gate"] {
        std::fs::write(spool.join(file), "").unwrap();
    }
    let mut asker = host.start();
    let order =
        "gated - closed 0 30 0 none 20 sudo:nonce:4:root\nmark-of-a-test\n\ntrue\n\n\n\n.\n";
    asker.stdin.take().unwrap().write_all(order.as_bytes()).unwrap();
    // It looks many times a second.
    tokio::time::sleep(Duration::from_millis(500)).await;
    std::fs::write(spool.join("gate"), "passed\n").unwrap();
    let mut told = String::new();
    asker.stdout.take().unwrap().read_to_string(&mut told).unwrap();
    asker.wait().unwrap();
    assert_eq!(told, "sshjobs-spool ok\n");
    assert!(spool.exists(), "the job that has passed is kept");
}

#[tokio::test]
async fn a_start_whose_asker_has_gone_comes_to_its_end() {
    let host = Host::new();
    let mut child = host.start();
    // Without a reader for the answer the script gets SIGPIPE.
    drop(child.stdout.take());
    child
        .stdin
        .take()
        .unwrap()
        .write_all(order("alone", "exit 4").as_bytes())
        .unwrap();
    child.wait().unwrap();
    assert_eq!(ended(&host.spool("alone")).await, "4");
}

#[tokio::test]
async fn a_start_that_was_killed_before_its_supervisor_began_is_finished_by_the_next() {
    let host = Host::new();
    let spool = host.spool("half");
    // Files left by a start that was killed between writing the order and starting the supervisor.
    std::fs::create_dir(&spool).unwrap();
    for (file, text) in [
        ("order", "mark-of-a-test\n\nexit 5\n\n"),
        ("mark", "mark-of-a-test\n"),
        ("out", ""),
        ("err", ""),
    ] {
        std::fs::write(spool.join(file), text).unwrap();
    }
    std::fs::write(spool.join("exit.r"), format!("{:<200}\n", "pending")).unwrap();
    let mut child = host.start();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(order("half", "exit 5").as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(ended(&spool).await, "5");
}

/// Properties shared by the perl follower and the shell follower; the host has both.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Perl,
    Shell,
}

impl Host {
    /// Installs the perl follower beside the script, and starts a follower of that kind for the
    /// jobs in `lines`.
    fn follow(&self, kind: Kind, follower: &str, lines: &str) -> Running {
        let perl_file = self.path("spool/script.pl");
        std::fs::write(perl_file, include_str!("../crates/job/src/spool/follow.pl")).unwrap();
        let no_perl = match kind {
            Kind::Perl => "",
            Kind::Shell => "1",
        };
        let mut child = Command::new("/bin/sh")
            .arg(self.path("spool/script"))
            .arg(self.0.path())
            .args(["follow", follower])
            .env("SSHJOBS_NO_PERL", no_perl)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.as_mut().unwrap();
        stdin.write_all(format!("{lines}.\n").as_bytes()).unwrap();
        Running(child)
    }

    /// A job directory as the supervisor of that process makes it.
    fn lay_down(&self, job: &str, supervisor: &str, output: &str) -> PathBuf {
        let spool = self.spool(job);
        std::fs::create_dir(&spool).unwrap();
        let files = [
            ("sup", supervisor),
            ("pid", supervisor),
            ("mark", "mark-of-a-test\n"),
            ("out", output),
            ("err", ""),
        ];
        for (file, text) in files {
            std::fs::write(spool.join(file), text).unwrap();
        }
        spool
    }
}

/// A process that ends with the test.
struct Running(Child);

impl Running {
    /// The next line on stdout that begins so.
    fn line(&mut self, begin: &str) -> String {
        let stdout = BufReader::new(self.0.stdout.as_mut().unwrap());
        let mut lines = stdout.lines().map(Result::unwrap);
        lines.find(|line| line.starts_with(begin)).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn start_time(pid: u32) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name = stat.rsplit_once(") ").unwrap().1;
    after_name.split(' ').nth(19).unwrap().to_owned()
}

fn boot() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    format!("{}.{}", boot.trim(), start_time(1))
}

/// A supervisor that lives as long as the test.
fn living_supervisor() -> String {
    let pid = std::process::id();
    format!("{pid} {} {}\n", start_time(pid), boot())
}

#[tokio::test]
async fn a_warden_that_was_killed_is_replaced_while_it_is_a_zombie() {
    let host = Host::new();
    host.lay_down("bounded", &living_supervisor(), "");
    std::fs::create_dir(host.spool("q")).unwrap();
    std::fs::write(host.spool("q/bounded"), "1000000 30\n").unwrap();
    let _follower = host.follow(Kind::Perl, "f1", "bounded 0 0\n");
    let warden = || std::fs::read_to_string(host.spool("warden")).unwrap_or_default();
    eventually("the follower has started a warden", async || {
        warden().contains(' ')
    })
    .await;
    let first: i32 = warden().split(' ').next().unwrap().parse().unwrap();
    kill(Pid::from_raw(first), Signal::SIGKILL).unwrap();

    // A warden that is not reaped: a child of ours that was killed and not waited for.
    let mut zombie = Command::new("sleep").arg("100").spawn().unwrap();
    let unreaped = format!("{} {}\n", zombie.id(), start_time(zombie.id()));
    zombie.kill().unwrap();
    std::fs::write(host.spool("warden"), &unreaped).unwrap();

    eventually("another warden has taken its place", async || {
        let now = warden();
        now.contains(' ') && now != unreaped
    })
    .await;

    zombie.wait().unwrap();
    std::fs::remove_file(host.spool("q/bounded")).unwrap();
    eventually("without quotas the warden ends", async || {
        !host.spool("warden").exists()
    })
    .await;
}

#[tokio::test]
async fn a_quota_of_a_job_that_was_removed_is_dropped() {
    let host = Host::new();
    std::fs::create_dir(host.spool("q")).unwrap();
    std::fs::write(host.spool("q/removed"), "1000000 30\n").unwrap();

    let _follower = host.follow(Kind::Shell, "f1", "");

    eventually("the quota is gone", async || {
        !host.spool("q/removed").exists()
    })
    .await;
}

#[tokio::test]
async fn a_follower_ends_when_the_spool_is_removed_under_it() {
    for kind in [Kind::Perl, Kind::Shell] {
        let host = Host::new();
        host.lay_down("job", &living_supervisor(), "");
        let mut follower = host.follow(kind, "f1", "job 0 0\n");
        follower.line("C");
        let spool = host.path("spool");
        let elsewhere = host.path("elsewhere");

        std::fs::rename(&spool, &elsewhere).unwrap();

        assert_eq!(exit_of(&mut follower.0).await, Some(0), "{kind:?}");
    }
}

#[tokio::test]
async fn an_exit_file_that_makes_no_sense_ends_the_job() {
    for kind in [Kind::Perl, Kind::Shell] {
        for text in ["", "\n", "garbage", "x - - 1700000000\n"] {
            let host = Host::new();
            let spool = host.lay_down("job", &living_supervisor(), "line\n");
            std::fs::write(spool.join("exit"), text).unwrap();

            let mut follower = host.follow(kind, "f1", "job 0 0\n");

            assert_eq!(
                follower.line("X"),
                "X job 5 0 lost supervisor_died",
                "{kind:?}, {text:?}"
            );
        }
    }
}

#[tokio::test]
async fn the_end_tells_the_size_of_a_file_that_was_shortened() {
    for kind in [Kind::Perl, Kind::Shell] {
        let host = Host::new();
        let spool = host.lay_down("job", &living_supervisor(), "four\n");
        std::fs::write(spool.join("exit"), "0 - - 1700000000\n").unwrap();

        let mut follower = host.follow(kind, "f1", "job 9 0\n");

        assert_eq!(
            follower.line("X"),
            "X job 5 0 exited 0 - - 1700000000",
            "{kind:?}"
        );
    }
}

#[tokio::test]
async fn a_follower_that_only_reports_states_sends_no_output_and_calls_no_running_job_lost() {
    for kind in [Kind::Perl, Kind::Shell] {
        let host = Host::new();
        host.lay_down("running", &living_supervisor(), "output\n");
        let ended = host.lay_down("ended", &living_supervisor(), "output\n");
        std::fs::write(ended.join("exit"), "0 - - 1700000000\n").unwrap();

        let lines = "running - -\nended - -\ngone - -\n";
        let mut follower = host.follow(kind, "f1", lines);

        let stdout = BufReader::new(follower.0.stdout.take().unwrap());
        let printed = stdout.lines().map(Result::unwrap).take_while(|line| line != "C");
        let mut told: Vec<String> = printed.filter(|line| line.starts_with(['D', 'X'])).collect();
        told.sort();
        let expected = [
            "X ended 7 0 exited 0 - - 1700000000",
            "X gone 0 0 lost spool_gone",
        ];
        assert_eq!(told, expected, "{kind:?}");
    }
}

#[tokio::test]
async fn output_is_followed_below_a_home_directory_with_a_space() {
    for kind in [Kind::Perl, Kind::Shell] {
        let host = Host::with_space();
        host.lay_down("job", &living_supervisor(), "output\n");

        let mut follower = host.follow(kind, "f1", "job 0 0\n");

        assert_eq!(follower.line("D"), "D job 1 0 7", "{kind:?}");
    }
}

#[tokio::test]
async fn a_time_limit_also_ends_background_processes_that_ignore_the_first_signal() {
    let host = Host::new();
    // A time limit of 0.2 seconds, and 3 tenths of a second between TERM and KILL.
    let text = "limited - closed 0.2 3 0 none 20 -\nmark-of-a-limited-test\n\n\
                (trap '' TERM; exec sleep 60) & sleep 60\n\n\n\n.\n";
    let mut child = host.start();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait().unwrap();

    ended(&host.spool("limited")).await;

    let left = Command::new("sh")
        .args([
            "-c",
            "grep -slF SSHJOBS_JOB=mark-of-a-limited-test /proc/[0-9]*/environ",
        ])
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&left.stdout),
        "",
        "its processes have ended"
    );
    let why = std::fs::read_to_string(host.spool("limited").join("why")).unwrap();
    assert_eq!(why, "timeout\n");
}

#[tokio::test]
async fn a_running_job_whose_output_was_shortened_is_lost_and_no_later_byte_is_sent() {
    for kind in [Kind::Perl, Kind::Shell] {
        let host = Host::new();
        let spool = host.lay_down("job", &living_supervisor(), "four\n");
        let mut follower = host.follow(kind, "f1", "job 9 0\n");
        let stdout = BufReader::new(follower.0.stdout.take().unwrap());
        let mut lines = stdout.lines().map(Result::unwrap);
        // It has seen the short file.
        let mut before = Vec::new();
        for line in lines.by_ref() {
            if line == "C" {
                break;
            }
            before.push(line);
        }

        std::fs::write(spool.join("out"), "more than nine bytes\n").unwrap();

        let mut all = before.into_iter().chain(lines);
        let line = all.find(|line| line.starts_with(['D', 'X'])).unwrap();
        assert!(line.ends_with("lost spool_gone"), "{kind:?}: {line}");
    }
}

#[tokio::test]
async fn the_end_has_the_figures_that_the_supervisor_noted() {
    let host = Host::new();
    let mut child = host.start();
    let text = order(
        "measured",
        "perl -e '$x = q(a) x 40_000_000; $i++ while $i < 3_000_000'; exit 3",
    );
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(ended(&host.spool("measured")).await, "3");

    for kind in [Kind::Perl, Kind::Shell] {
        let mut follower = host.follow(kind, "f1", "measured 0 0\n");
        let end = follower.line("X");
        let words: Vec<&str> = end.split(' ').collect();
        let [kills_in_cgroup, kills_on_host, user, _system, peak_kib, how] = words[9..] else {
            panic!("{kind:?}: {end}");
        };
        assert!(["-", "0"].contains(&kills_in_cgroup), "{end}");
        assert!(kills_on_host.parse::<u64>().is_ok(), "{end}");
        let is_nonzero = user.contains(|c| matches!(c, '1'..='9'));
        assert!(is_nonzero, "{end}");
        assert!(peak_kib.parse::<u64>().unwrap() > 40_000, "{end}");
        assert_eq!(how, "exit", "{end}");
    }
}

#[tokio::test]
async fn every_shell_that_is_sh_on_some_host_runs_and_measures_a_job() {
    for shell in ["dash", "bash", "ksh", "mksh", "busybox sh"] {
        let host = Host::new();
        let wrapper = host.path("sh");
        std::fs::write(&wrapper, format!("#!/bin/sh\nexec {shell} \"$@\"\n")).unwrap();
        std::fs::set_permissions(&wrapper, PermissionsExt::from_mode(0o755)).unwrap();
        let script = include_str!("../crates/job/src/spool/spool.sh");
        let script = script.replace("/bin/sh", wrapper.to_str().unwrap());
        std::fs::write(host.path("spool/script"), script).unwrap();

        let mut child = Command::new(&wrapper)
            .arg(host.path("spool/script"))
            .arg(host.0.path())
            .arg("start")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(order("job", "exit 4").as_bytes())
            .unwrap();
        assert!(child.wait().unwrap().success(), "{shell}");

        assert_eq!(ended(&host.spool("job")).await, "4", "{shell}");
        let exit = std::fs::read_to_string(host.spool("job").join("exit")).unwrap();
        let words: Vec<&str> = exit.split_whitespace().collect();
        assert_eq!(words.len(), 10, "{shell}: {exit}");
        assert!(
            words[6].ends_with('s') && words[8].parse::<u64>().is_ok(),
            "{shell}: {exit}"
        );
    }
}

#[tokio::test]
async fn a_job_whose_measuring_process_was_killed_runs_on_and_has_no_known_end() {
    let host = Host::new();
    let (spool, go) = (host.spool("job"), host.path("go"));
    let command = format!("while ! [ -e {} ]; do sleep 0.05; done", go.display());
    let mut child = host.start();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(order("job", &command).as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success());
    eventually("it runs", async || {
        std::fs::read_to_string(spool.join("pid")).is_ok_and(|text| text.ends_with('\n'))
    })
    .await;
    let first_number = |file: &str| -> i32 {
        let text = std::fs::read_to_string(spool.join(file)).unwrap();
        text.split(' ').next().unwrap().parse().unwrap()
    };
    let (leader, supervisor) = (first_number("pid"), first_number("sup"));

    kill(Pid::from_raw(parent_of(leader)), Signal::SIGKILL).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(!spool.join("exit").exists(), "the job still runs");
    std::fs::write(go, "").unwrap();

    eventually("the supervisor has ended", async || {
        !Path::new(&format!("/proc/{supervisor}")).exists()
    })
    .await;
    assert!(!spool.join("exit").exists());
}

/// Runs a command in a host's environment with this change, and returns its exit file and its stderr.
async fn run_with(variable: (&str, &str), command: &str) -> (String, String) {
    let host = Host::new();
    let mut child = Command::new("/bin/sh")
        .arg(host.path("spool/script"))
        .arg(host.0.path())
        .arg("start")
        .env(variable.0, variable.1)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(order("job", command).as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    ended(&host.spool("job")).await;
    let read = |file: &str| std::fs::read_to_string(host.spool("job").join(file)).unwrap();
    (read("exit"), read("err"))
}

#[tokio::test]
async fn measuring_adds_nothing_to_the_output_or_the_environment_of_a_job() {
    let locale = ("LC_ALL", "xx_XX.UTF-8");
    let command = "test -z \"${PERL_BADLANG+x}\" || exit 9; perl -e1 2>/dev/null; exit 3";

    let (exit, stderr) = run_with(locale, command).await;

    assert!(exit.starts_with("3 "), "{exit}");
    // The login shell may warn.
    assert!(!stderr.contains("perl"), "{stderr}");
}

#[tokio::test]
async fn a_host_whose_perl_does_not_start_runs_jobs_unmeasured() {
    let broken = tempfile::tempdir().unwrap();
    let perl = broken.path().join("perl");
    std::fs::write(&perl, "#!/bin/sh\nexit 1\n").unwrap();
    std::fs::set_permissions(&perl, PermissionsExt::from_mode(0o755)).unwrap();
    let ran = broken.path().join("ran");
    let path = format!(
        "{}:{}",
        broken.path().display(),
        std::env::var("PATH").unwrap()
    );

    let command = format!("echo ran >> {}; exit 3", ran.display());
    let (exit, stderr) = run_with(("PATH", &path), &command).await;

    assert!(exit.starts_with("3 "), "{exit}");
    let words: Vec<&str> = exit.split_whitespace().collect();
    assert_eq!(words[8..], ["-", "-"], "{exit}");
    assert_eq!(
        (
            stderr.as_str(),
            std::fs::read_to_string(ran).unwrap().as_str()
        ),
        ("", "ran\n")
    );
}

fn parent_of(pid: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name = stat.rsplit_once(") ").unwrap().1;
    after_name.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn old_jobs_are_removed_below_a_home_directory_with_a_space() {
    let host = Host::with_space();
    let new = host.spool("new");
    let old = host.spool("old");
    let killed = host.spool("killed");
    for job in [&new, &old, &killed] {
        std::fs::create_dir_all(job).unwrap();
        std::fs::write(job.join("mark"), "mark").unwrap();
    }
    std::fs::write(new.join("exit"), "exited 0").unwrap();
    std::fs::write(old.join("exit"), "exited 0").unwrap();
    for file in [old.join("exit"), old.join("mark"), killed.join("mark")] {
        let touched = Command::new("touch").args(["-d", "10 days ago"]).arg(file).status();
        assert!(touched.unwrap().success());
    }

    let swept = Command::new("/bin/sh")
        .arg(host.path("spool/script"))
        .arg(host.path(""))
        .args(["sweep", "7"])
        .output()
        .unwrap();

    assert!(swept.status.success(), "{swept:?}");
    assert!(new.exists());
    assert!(!old.exists());
    assert!(!killed.exists());
}

/// Answer of the script to `resize` of a job that does not exist, with a fencing token.
fn resize_with_token(host: &Host, name: &str, token: u64) -> String {
    let script = format!(
        "sj_K={name}; sj_T={token}; set -- \"$0\" resize web1-none 80 24; sj_F=$0/spool/script; . \"$sj_F\""
    );
    let output = Command::new("/bin/sh")
        .arg("-c")
        .arg(script)
        .arg(host.0.path())
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[tokio::test]
async fn an_order_with_an_older_token_than_one_that_was_seen_is_refused() {
    let host = Host::new();
    const FENCED: &str = "sshjobs-spool fenced";

    assert_ne!(resize_with_token(&host, "aa", 9), FENCED);
    assert_ne!(resize_with_token(&host, "aa", 10), FENCED);
    assert_eq!(resize_with_token(&host, "aa", 9), FENCED);
    assert_eq!(resize_with_token(&host, "aa", 0), FENCED);
    assert_ne!(resize_with_token(&host, "aa", 10), FENCED);
    assert_ne!(resize_with_token(&host, "bb", 1), FENCED, "another cluster");
    let leases = std::fs::read_dir(host.spool("")).unwrap();
    let names = leases.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut leases: Vec<String> = names.filter(|name| name.starts_with("lease")).collect();
    leases.sort();
    assert_eq!(leases, ["lease.aa.10", "lease.bb.1"]);
}

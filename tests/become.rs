//! Commands and files as another user: sudo, doas and su on a host with accounts of its own. It has
//! its own /etc and its own processes, which takes root.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use serde_json::json;
use sshjobs_core::jobs::{
    Access, Become, BecomeMethod, Caller, Command, Config, Follow, HostPath, HostPatterns,
    HostSettings, Job, Jobs, Outcome, PutOptions, RemotePath, Rights, Role, SecretSource, Signal,
    SignalReport, Stdin, Terminal, TransferProgress,
};
use sshjobs_wire::{Code, Error};
use support::server::Server;
use support::tmux::Tmux;
use support::{HOST, McpClient, Namespace, Sshd, eventually};

/// The account that logs in. Its password is `ACCOUNT_PASSWORD`.
const ACCOUNT_PASSWORD: &str = "correct-horse";
const ROOT_PASSWORD: &str = "battery-staple";
const WRONG_PASSWORD: &str = "hunter2-hunter2";

/// Time limit for a job to take its input.
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes an /etc with the accounts `worker`, which logs in, and `other`.
const SETUP: &str = r#"
cp -a /etc "$3/etc"
hash() { openssl passwd -6 -in "$1"; }
sed -i "s|^root:[^:]*:|root:$(hash "$3/root-password"):|" "$3/etc/shadow"
echo "worker:$(hash "$3/account-password"):20000:0:99999:7:::" >>"$3/etc/shadow"
echo "other:*:20000:0:99999:7:::" >>"$3/etc/shadow"
echo "worker:x:61001:61001::$3/home:/bin/bash" >>"$3/etc/passwd"
echo "other:x:61002:61002::$3/home:/bin/sh" >>"$3/etc/passwd"
printf 'worker:x:61001:\nother:x:61002:\n' >>"$3/etc/group"
cat "$3/sudoers" >"$3/etc/sudoers"
rm -rf "$3/etc/sudoers.d"
cat "$3/doas.conf" >"$3/etc/doas.conf"
chmod 0440 "$3/etc/sudoers" "$3/etc/doas.conf"
mkdir -p "$3/home" "$3/bin"
chown 61001:61001 "$3/home"
for program in /usr/bin/*; do
  case ${program##*/} in sudo|doas) ;; *) ln -s "$program" "$3/bin/" ;; esac
done
mount --bind "$3/etc" /etc || exit
exec /usr/sbin/sshd -D -e -p "$1" -f "$2" -o "ListenAddress=127.0.0.1:$1" \
  -o "AuthorizedKeysFile=$3/authorized_keys" -o "SetEnv=SHLVL=1 XDG_STATE_HOME=$3/home/state $4"
"#;

/// A host on which `worker` logs in.
struct Host {
    _namespace: Namespace,
    sshd: Sshd,
    directory: tempfile::TempDir,
}

/// How a host changes users.
#[derive(Default)]
struct Rules {
    sudoers: &'static str,
    doas: &'static str,
    programs: Programs,
}

/// The programs in PATH.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Programs {
    #[default]
    AsUsual,
    /// Neither sudo nor doas.
    Missing,
    /// A sudo that takes two seconds, and is not ended by a closed pipe.
    Slow,
    /// A sudo that fails with the password that it was given.
    Telling,
}

const SLOW_SUDO: &str = "#!/bin/sh\ntrap '' PIPE; sleep 2; exec /usr/bin/sudo \"$@\"\n";
const TELLING_SUDO: &str = "#!/bin/sh\nwhile [ $# -gt 1 ] && [ \"$1\" != -p ]; do shift; done; printf %s \"$2\" >&2; read -r given\necho \"sudo: $given is the password\" >&2; exit 1\n";

const WITH_PASSWORD: Rules = Rules {
    sudoers: "Defaults lecture=always\nworker ALL=(ALL) ALL",
    doas: "permit worker",
    programs: Programs::AsUsual,
};
const WITHOUT_PASSWORD: Rules = Rules {
    sudoers: "worker ALL=(ALL) NOPASSWD: ALL",
    doas: "permit nopass worker",
    programs: Programs::AsUsual,
};

/// The variable PATH with a sudo that is this script.
fn sudo_in_path(directory: &Path, script: &str) -> String {
    std::fs::create_dir(directory).unwrap();
    let sudo = directory.join("sudo");
    std::fs::write(&sudo, script).unwrap();
    std::fs::set_permissions(&sudo, PermissionsExt::from_mode(0o755)).unwrap();
    format!("PATH={}:/usr/bin:/bin", directory.display())
}

impl Host {
    async fn start(rules: Rules) -> Self {
        let sshd = Sshd::start().await;
        let directory = tempfile::Builder::new().prefix("sshjobs-become").tempdir().unwrap();
        let path = |file: &str| directory.path().join(file);
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::copy(sshd.path("id.pub"), path("authorized_keys")).unwrap();
        // Hosts of tests that run at the same time have the same users and process ids: sudo would
        // take a password that was typed on one of them for one that was typed on another.
        let sudoers = format!(
            "Defaults env_reset, timestampdir={}\nroot ALL=(ALL) ALL\n{}\n",
            path("sudo-timestamps").display(),
            rules.sudoers
        );
        std::fs::write(path("sudoers"), sudoers).unwrap();
        std::fs::write(path("doas.conf"), format!("{}\n", rules.doas)).unwrap();
        // Not as arguments: a test looks for them in the list of processes.
        std::fs::write(path("account-password"), ACCOUNT_PASSWORD).unwrap();
        std::fs::write(path("root-password"), ROOT_PASSWORD).unwrap();
        let variables = match rules.programs {
            Programs::AsUsual => String::new(),
            Programs::Missing => format!("PATH={}", path("bin").display()),
            Programs::Slow => sudo_in_path(&path("own"), SLOW_SUDO),
            Programs::Telling => sudo_in_path(&path("own"), TELLING_SUDO),
        };
        let arguments = [directory.path(), Path::new(&variables)];
        let namespace = Namespace::start(&sshd, SETUP, &arguments).await;
        sshd.append("  User worker\n");
        Self {
            _namespace: namespace,
            sshd,
            directory,
        }
    }

    /// A configuration in which this is the password for becoming another user.
    fn config(&self, password: Option<&str>) -> Config {
        let become_password = password.map(|password| {
            let file = self.sshd.path("become-password");
            std::fs::write(&file, format!("{password}\n")).unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
            SecretSource::File(file)
        });
        let settings = HostSettings {
            become_password,
            ..HostSettings::default()
        };
        Config {
            hosts: BTreeMap::from([(HOST.to_owned(), settings)]),
            state_dir: Some(self.sshd.path("state")),
            store: true,
            ..self.sshd.config()
        }
    }

    fn jobs(&self, password: Option<&str>) -> Jobs {
        Jobs::new(self.config(password), Access::Listed)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }
}

fn becoming(user: &str, method: BecomeMethod) -> Become {
    Become::new(user, method).unwrap()
}

fn root() -> Become {
    becoming("root", BecomeMethod::Sudo)
}

/// Output of a command that runs as another user.
async fn output(jobs: &Jobs, becomes: Become, command: &str) -> (String, String, Outcome) {
    let command = Command::shell(command).become_user(becomes);
    collect(jobs.follow(HOST, command).await.unwrap()).await
}

/// The command, as a durable job or not.
fn kept(command: Command, durable: bool) -> Command {
    if durable { command.durable() } else { command }
}

/// Why a command can't be run as another user.
async fn refusal(jobs: &Jobs, becomes: Become) -> Error {
    let refused = jobs.spawn(HOST, Command::shell("touch never").become_user(becomes)).await;
    Error::from(refused.err().unwrap())
}

/// Everything that a job prints, and its end.
async fn collect(mut following: Follow) -> (String, String, Outcome) {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    loop {
        let piece = following.next().await;
        stdout.extend_from_slice(&piece.stdout);
        stderr.extend_from_slice(&piece.stderr);
        if let Some(outcome) = piece.outcome {
            let text = |bytes| String::from_utf8(bytes).unwrap();
            return (text(stdout), text(stderr), outcome);
        }
    }
}

fn is_alive(mark: &str) -> bool {
    let processes = process::Command::new("ps").args(["-eo", "args"]).output().unwrap();
    String::from_utf8_lossy(&processes.stdout)
        .lines()
        .any(|line| line.starts_with(mark))
}

#[tokio::test]
async fn a_command_runs_as_root_and_nothing_else_gets_into_its_streams() {
    let host = Host::start(WITH_PASSWORD).await;
    let jobs = host.jobs(Some(ACCOUNT_PASSWORD));

    let command = Command::shell("id -un; pwd; echo $SSHJOBS_TEST; cat; echo error >&2; exit 3")
        .become_user(root())
        .env("SSHJOBS_TEST", "it's a 'value'")
        .stdin(Stdin::Text("for the command\n".into()));
    let (stdout, stderr, outcome) = collect(jobs.follow(HOST, command).await.unwrap()).await;

    let home = host.path("home");
    let expected = format!(
        "root\n{}\nit's a 'value'\nfor the command\n",
        home.display()
    );
    assert_eq!(stdout, expected);
    assert_eq!(stderr, "error\n", "no lecture and no prompt");
    assert_eq!(outcome.exit_status(), Some(3));
}

#[tokio::test]
async fn every_program_and_every_first_command_changes_the_user() {
    for (rules, password) in [
        (WITH_PASSWORD, Some(ACCOUNT_PASSWORD)),
        (WITHOUT_PASSWORD, None),
        // A password that nothing asks for must not become input of the command.
        (WITHOUT_PASSWORD, Some(ACCOUNT_PASSWORD)),
    ] {
        let without_password = password.is_none();
        let host = Host::start(rules).await;
        let jobs = host.jobs(password);
        for attempt in ["login shell unknown", "login shell known"] {
            for user in ["root", "other"] {
                let told = output(&jobs, becoming(user, BecomeMethod::Sudo), "id -un; cat").await;
                assert_eq!(told.0, format!("{user}\n"), "{attempt}: {}", told.1);
            }
        }
        if without_password {
            let told = output(&jobs, becoming("other", BecomeMethod::Doas), "id -un").await;
            assert_eq!((&*told.0, &*told.1), ("other\n", ""));
        }
    }
    let host = Host::start(WITH_PASSWORD).await;
    let jobs = host.jobs(Some(ROOT_PASSWORD));
    let told = output(
        &jobs,
        becoming("root", BecomeMethod::Su),
        "id -un; cat; echo $HOME",
    )
    .await;
    assert_eq!(
        told,
        ("root\n/root\n".into(), String::new(), told.2.clone())
    );
}

#[tokio::test]
async fn a_wrong_password_is_tried_once_and_is_become_failed() {
    let host = Host::start(WITH_PASSWORD).await;
    let jobs = host.jobs(Some(WRONG_PASSWORD));
    for (method, what) in [(BecomeMethod::Sudo, "sudo"), (BecomeMethod::Su, "su")] {
        let error = refusal(&jobs, becoming("root", method)).await;
        assert_eq!(error.code, Code::BecomeFailed, "{error:?}");
        assert!(
            error.message.contains("password was not accepted"),
            "{what}: {error:?}"
        );
        assert!(!format!("{error:?}").contains(WRONG_PASSWORD), "{error:?}");
    }
    let durable = jobs.spawn(HOST, Command::shell("true").become_user(root()).durable()).await;
    let error = Error::from(durable.err().unwrap());
    assert_eq!(error.code, Code::BecomeFailed, "{error:?}");
    assert!(
        error.message.contains("password was not accepted"),
        "{error:?}"
    );

    let unasked = refusal(&host.jobs(None), root()).await;
    assert_eq!(unasked.code, Code::BecomeFailed);
    assert!(unasked.hint.contains("become_password"), "{unasked:?}");
    assert!(!host.path("home/never").exists(), "nothing has run");
}

/// The program of the host is not trusted with the words of an error.
#[tokio::test]
async fn a_program_that_prints_the_password_shows_it_to_nobody() {
    let rules = Rules {
        programs: Programs::Telling,
        ..WITH_PASSWORD
    };
    let host = Host::start(rules).await;
    let jobs = host.jobs(Some(ACCOUNT_PASSWORD));
    for durable in [false, true] {
        let command = kept(Command::shell("true").become_user(root()), durable);
        let error = Error::from(jobs.spawn(HOST, command).await.err().unwrap());
        let text = format!("{error:?}");
        assert!(
            text.contains("[secret become_password] is the password"),
            "{text}"
        );
        assert!(!text.contains(ACCOUNT_PASSWORD), "{text}");
    }
}

#[tokio::test]
async fn a_program_that_is_missing_or_needs_a_terminal_says_what_to_do() {
    let host = Host::start(Rules {
        programs: Programs::Missing,
        ..WITH_PASSWORD
    })
    .await;
    for method in [BecomeMethod::Sudo, BecomeMethod::Doas] {
        let error = refusal(&host.jobs(Some(ACCOUNT_PASSWORD)), becoming("root", method)).await;
        assert_eq!(error.code, Code::BecomeFailed, "{error:?}");
        assert!(error.message.contains("is not installed"), "{error:?}");
    }
    drop(host);

    let host = Host::start(Rules {
        sudoers: "Defaults requiretty\nworker ALL=(ALL) ALL",
        ..WITH_PASSWORD
    })
    .await;
    let jobs = host.jobs(Some(ACCOUNT_PASSWORD));
    for method in [BecomeMethod::Sudo, BecomeMethod::Doas] {
        let error = refusal(&jobs, becoming("root", method)).await;
        assert!(error.hint.contains("pty=true"), "{error:?}");

        let on_terminal = Command::shell("id -un; echo $SECRET")
            .become_user(becoming("root", method))
            .env("SECRET", "value")
            .terminal(Terminal::new("xterm", 80, 24).unwrap());
        let (text, _, _) = collect(jobs.follow(HOST, on_terminal).await.unwrap()).await;
        assert_eq!(text, "root\r\nvalue\r\n", "{method:?}");
    }
    let nobody = refusal(&jobs, becoming("no-such-user", BecomeMethod::Sudo)).await;
    assert_eq!(nobody.code, Code::BecomeFailed);
}

#[tokio::test]
async fn no_password_is_in_a_process_list_or_an_environment() {
    let host = Host::start(WITH_PASSWORD).await;
    let jobs = host.jobs(Some(ACCOUNT_PASSWORD));
    let is_over = Arc::new(AtomicBool::new(false));
    let seen = std::thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            let mut looks = 0;
            while !is_over.load(Relaxed) {
                for entry in std::fs::read_dir("/proc").unwrap().flatten() {
                    for file in ["cmdline", "environ"] {
                        let bytes = std::fs::read(entry.path().join(file)).unwrap_or_default();
                        let text = String::from_utf8_lossy(&bytes);
                        assert!(!text.contains(ACCOUNT_PASSWORD), "{text}");
                        looks += usize::from(text.contains("sudo"));
                    }
                }
            }
            looks
        }
    });
    for durable in [false, false, false, true, true] {
        let command = kept(Command::shell("sleep 0.3").become_user(root()), durable);
        let status = jobs.spawn(HOST, command).await.unwrap().wait().await;
        assert_eq!(status.exit_status(), Some(0));
    }
    is_over.store(true, Relaxed);
    assert!(seen.join().unwrap() > 0, "sudo was seen");
}

#[tokio::test]
async fn a_signal_reaches_processes_of_the_other_user() {
    for (rules, password) in [
        (WITH_PASSWORD, Some(ACCOUNT_PASSWORD)),
        (WITHOUT_PASSWORD, None),
    ] {
        let host = Host::start(rules).await;
        let jobs = host.jobs(password);
        for (user, durable) in [("root", false), ("other", false), ("root", true)] {
            let mark = format!("sleep 61{}", rand_digits());
            // One of them leaves the group.
            let command = format!("setsid {mark} & {mark}7 & wait");
            let command = Command::shell(command).become_user(becoming(user, BecomeMethod::Sudo));
            let job = jobs.spawn(HOST, kept(command, durable)).await.unwrap();
            eventually("it runs", async || is_alive(&mark)).await;
            let report = kill(&job).await;
            assert!(
                report.confirmed_dead,
                "{user}, durable {durable}: {report:?}"
            );
            assert!(!is_alive(&mark), "{user}, durable {durable}");
            job.wait().await;
        }
    }
}

async fn kill(job: &Job) -> SignalReport {
    job.signal(Signal::TERM, Some(Duration::from_secs(2))).await.unwrap()
}

fn rand_digits() -> u32 {
    use std::time::SystemTime;
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .subsec_micros()
}

#[tokio::test]
async fn a_signal_that_can_not_cross_the_boundary_says_so() {
    let host = Host::start(WITH_PASSWORD).await;
    let jobs = host.jobs(Some(ACCOUNT_PASSWORD));
    let mark = format!("sleep 62{}", rand_digits());
    let job = jobs.spawn(HOST, Command::shell(&mark).become_user(root())).await.unwrap();
    eventually("it runs", async || is_alive(&mark)).await;
    std::fs::remove_file(host.sshd.path("become-password")).unwrap();

    let report = kill(&job).await;

    assert!(!report.confirmed_dead, "{report:?}");
    assert!(
        report.unverified.unwrap().to_string().contains("another user"),
        "{report:?}"
    );
    assert!(is_alive(&mark));
    // With the password it can be ended.
    host.config(Some(ACCOUNT_PASSWORD));
    assert!(kill(&job).await.confirmed_dead);
    assert!(!is_alive(&mark));
}

#[tokio::test]
async fn a_durable_job_runs_as_root_with_its_stdin_and_without_the_dialogue() {
    for (rules, password) in [
        (WITH_PASSWORD, Some(ACCOUNT_PASSWORD)),
        (WITHOUT_PASSWORD, None),
    ] {
        let host = Host::start(rules).await;
        let jobs = host.jobs(password);
        let script = "id -un; echo \"$NAME\"; pwd; umask; cat; echo error >&2; exit 4";
        for stdin in [Stdin::Open, Stdin::Closed, Stdin::Text("typed\n".into())] {
            let is_open = matches!(stdin, Stdin::Open);
            let typed = if matches!(stdin, Stdin::Closed) {
                ""
            } else {
                "typed\n"
            };
            let command = Command::shell(script)
                .become_user(root())
                .durable()
                .env("NAME", "a 'quoted' value")
                .current_dir("/var")
                .stdin(stdin);
            let job = jobs.spawn(HOST, command).await.unwrap();
            if is_open {
                job.write(b"typed\n", PATIENCE).await.unwrap();
                job.close_stdin(PATIENCE).await.unwrap();
            }
            let (stdout, stderr, outcome) = collect(job.follow().await.unwrap()).await;
            assert_eq!(
                stdout,
                format!("root\na 'quoted' value\n/var\n0022\n{typed}")
            );
            assert_eq!(stderr, "error\n");
            assert_eq!(outcome.exit_status(), Some(4));
        }
        let leftovers = process::Command::new("grep")
            .args(["-rlE", ACCOUNT_PASSWORD])
            .arg(host.path("home"))
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&leftovers.stdout), "");
    }
}

#[tokio::test]
async fn files_of_root_are_read_written_and_copied() {
    let host = Host::start(WITH_PASSWORD).await;
    let jobs = host.jobs(Some(ACCOUNT_PASSWORD));
    let directory = host.path("of-root");
    std::fs::create_dir(&directory).unwrap();
    std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o700)).unwrap();
    let path = RemotePath::new(format!("{}/file", directory.display())).unwrap();
    let place = HostPath {
        host: HOST,
        path: &path,
    };
    let content = || sshjobs_core::jobs::FileSource::Memory("only root may read it\n".into());
    let options = PutOptions::default();

    let denied = jobs.put_file(place, content(), &options, &TransferProgress::default()).await;
    assert_eq!(
        Error::from(denied.unwrap_err()).code,
        Code::PermissionDenied
    );
    let as_root = jobs.with_context(|context| context.becomes = Some(root()));
    as_root
        .put_file(place, content(), &options, &TransferProgress::default())
        .await
        .unwrap();

    let written = std::fs::metadata(directory.join("file")).unwrap();
    assert_eq!((written.uid(), written.gid()), (0, 0));
    let files = as_root.files(HOST).await.unwrap();
    assert_eq!(
        files.read_whole(&path, 1000).await.unwrap(),
        "only root may read it\n"
    );
    assert!(files.digest(&path, written.len()).await.unwrap().is_some());

    let local = host.sshd.path("tree");
    let all = RemotePath::new(directory.display().to_string()).unwrap();
    let from = HostPath {
        host: HOST,
        path: &all,
    };
    let progress = Arc::new(TransferProgress::default());
    let report = as_root.get_tree(from, &local, Default::default(), &progress).await.unwrap();
    assert_eq!(report.written, 1, "{report:?}");
    assert_eq!(
        std::fs::read_to_string(local.join("file")).unwrap(),
        "only root may read it\n"
    );
}

#[tokio::test]
async fn a_killed_process_leaves_no_root_process_behind() {
    let host = Host::start(WITH_PASSWORD).await;
    let mark = format!("sleep 63{}", rand_digits());
    let config = host.path("config.toml");
    host.config(Some(ACCOUNT_PASSWORD));
    let password = host.sshd.path("become-password");
    std::fs::write(
        &config,
        format!(
            "[hosts.{HOST}]\nbecome_password = {{ file = \"{}\" }}\n",
            password.display()
        ),
    )
    .unwrap();
    let sshjobs = |arguments: &[&str]| {
        let mut command = process::Command::new(env!("CARGO_BIN_EXE_sshjobs"));
        command
            .arg("--config")
            .arg(&config)
            .arg("--ssh-config")
            .arg(host.sshd.ssh_config())
            .arg("--state-dir")
            .arg(host.sshd.path("state"))
            .args(arguments)
            .stdin(Stdio::null());
        command
    };
    let trap = format!("trap '' HUP PIPE; {mark}; {mark}");
    let mut killed = sshjobs(&["run", "-b", HOST, "--", &trap]).spawn().unwrap();
    eventually("it runs", async || is_alive(&mark)).await;
    killed.kill().unwrap();
    killed.wait().unwrap();

    let told = sshjobs(&["run", "-b", HOST, "--", "id -un; exit 7"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&told.stdout), "root\n");
    assert_eq!(
        told.status.code(),
        Some(7),
        "{}",
        String::from_utf8_lossy(&told.stderr)
    );
    eventually("the next process has ended it", async || {
        if !is_alive(&mark) {
            return true;
        }
        sshjobs(&["run", HOST, "--", "true"]).output().unwrap();
        false
    })
    .await;

    std::fs::write(&password, WRONG_PASSWORD).unwrap();
    let told = sshjobs(&["run", "--become", "root", HOST, "--", "true"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&told.stderr);
    assert_eq!(told.status.code(), Some(255), "{stderr}");
    assert!(
        stderr.contains("become_failed") && !stderr.contains(WRONG_PASSWORD),
        "{stderr}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_asks_for_one_password_and_again_if_it_is_refused() {
    let host = Host::start(WITH_PASSWORD).await;
    host.sshd.alias(["db1", "db2"]);
    for kind in ["run -b", "spawn -b"] {
        let line = format!(
            "XDG_CONFIG_HOME={} {} --ssh-config {} --state-dir {} {kind} web1,db1,db2 -- id -un",
            host.sshd.path("no-config").display(),
            env!("CARGO_BIN_EXE_sshjobs"),
            host.sshd.ssh_config().display(),
            host.sshd.path("state").display(),
        );
        let tmux = Tmux::start(&line, (100, 30));
        let question = "(all hosts of this run) password of worker for sudo:";
        tmux.shows(&[question]).await;
        tmux.text(WRONG_PASSWORD);
        tmux.press(&["Enter"]);
        tmux.shows(&["That was not accepted."]).await;
        tmux.text(ACCOUNT_PASSWORD);
        tmux.press(&["Enter"]);
        tmux.shows(&["ended with 0"]).await;
        let screen = tmux.screen();
        assert_eq!(screen.matches("password of worker").count(), 2, "{screen}");
        if kind == "run -b" {
            assert!(screen.contains("db[1-2],web1 (3)"), "{screen}");
        }
    }
}

#[tokio::test]
async fn a_durable_job_that_ends_at_once_has_run() {
    for rules in [WITH_PASSWORD, WITHOUT_PASSWORD] {
        let host = Host::start(rules).await;
        let jobs = host.jobs(Some(ACCOUNT_PASSWORD));
        // Late output of a background process belongs to the job.
        let late = Command::shell("(sleep 0.3; echo late) & echo early");
        let job = jobs.spawn(HOST, late.become_user(root()).durable()).await.unwrap();
        assert_eq!(
            collect(job.follow().await.unwrap()).await.0,
            "early\nlate\n"
        );
        for number in 0..12 {
            let command = Command::shell(format!("echo {number}; exit 4"));
            let job = jobs.spawn(HOST, command.become_user(root()).durable()).await.unwrap();
            let (stdout, _, outcome) = collect(job.follow().await.unwrap()).await;
            assert_eq!(
                (stdout, outcome.exit_status()),
                (format!("{number}\n"), Some(4))
            );
        }
    }
}

#[tokio::test]
async fn a_time_limit_ends_a_durable_job_or_says_that_it_can_not() {
    for (rules, password) in [
        (WITHOUT_PASSWORD, None),
        (WITH_PASSWORD, Some(ACCOUNT_PASSWORD)),
    ] {
        let host = Host::start(rules).await;
        let jobs = host.jobs(password);
        let mark = format!("sleep 64{}", rand_digits());
        let command = Command::shell(&mark).become_user(root()).durable();
        let job = jobs.spawn(HOST, command.timeout(Duration::from_secs(1))).await.unwrap();
        eventually("it runs", async || is_alive(&mark)).await;
        if password.is_none() {
            assert!(job.wait_within(Duration::from_secs(60)).await);
            eventually("it has ended", async || !is_alive(&mark)).await;
            continue;
        }
        let mut lines = job.lines().await.unwrap();
        let note = lines.next().await.unwrap().unwrap().text;
        assert!(note.contains("asks for a password"), "{note}");
        assert!(is_alive(&mark) && !job.wait_within(Duration::ZERO).await);
        assert!(kill(&job).await.confirmed_dead);
        assert!(!is_alive(&mark));
    }
}

#[tokio::test]
async fn a_caller_with_host_patterns_becomes_only_users_that_they_name() {
    let host = Host::start(WITHOUT_PASSWORD).await;
    let jobs = host.jobs(None);
    let caller = |patterns: &str| {
        let hosts = HostPatterns::from(patterns.to_owned());
        let rights = Rights {
            hosts,
            ..Rights::everywhere(Role::Run)
        };
        jobs.of(Caller::new("ci"), rights)
    };
    let limited = caller(HOST);
    let error = refusal(&limited, root()).await;
    assert_eq!(error.code, Code::PolicyDenied, "{error:?}");
    let files = limited.with_context(|context| context.becomes = Some(root()));
    let files = files.files(HOST).await;
    assert_eq!(Error::from(files.err().unwrap()).code, Code::PolicyDenied);
    let told = output(&caller(&format!("{HOST},root@{HOST}")), root(), "id -un").await;
    assert_eq!(told.0, "root\n", "{}", told.1);
}

#[tokio::test]
async fn a_start_that_is_given_up_runs_nothing_however_late_sudo_is() {
    let host = Host::start(Rules {
        programs: Programs::Slow,
        ..WITHOUT_PASSWORD
    })
    .await;
    let jobs = host.jobs(None);
    let touch = |file: &str| {
        jobs.spawn(
            HOST,
            Command::shell(format!("touch {file}")).become_user(root()),
        )
    };
    // The caller goes away while sudo is still at work: no signal ends it there.
    let given_up = tokio::time::timeout(Duration::from_millis(700), touch("given-up"));
    assert!(given_up.await.is_err(), "sudo takes two seconds");

    // Slower than the first would have been.
    let done = touch("done").await.unwrap().wait().await;
    assert_eq!(done.exit_status(), Some(0));
    assert!(!host.path("home/given-up").exists());
    assert!(host.path("home/done").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_at_the_terminal_is_asked_once_for_each_attempt() {
    let host = Host::start(WITH_PASSWORD).await;
    let run = |verb: &str| {
        format!(
            "{} --ssh-config {} --state-dir {} {verb}",
            env!("CARGO_BIN_EXE_sshjobs"),
            host.sshd.ssh_config().display(),
            host.sshd.path("state").display()
        )
    };
    let prompt = "password of worker for sudo:";

    let right = Tmux::start(
        &run("run -b web1 -- 'id -un; echo and $((6 * 7))'"),
        (90, 20),
    );
    right.shows(&[prompt]).await;
    right.text(ACCOUNT_PASSWORD);
    right.press(&["Enter"]);
    right.shows(&["root", "and 42", "ended with 0"]).await;
    assert!(!right.screen().contains(ACCOUNT_PASSWORD));

    let wrong = Tmux::start(&run("run -b web1 -- id -un"), (90, 20));
    wrong.shows(&[prompt]).await;
    wrong.text(WRONG_PASSWORD);
    wrong.press(&["Enter"]);
    wrong.shows(&["become_failed", "ended with 255"]).await;
    assert!(!wrong.screen().contains(WRONG_PASSWORD));

    let file = host.path("from-here");
    std::fs::write(&file, "of root\n").unwrap();
    let target = host.path("home/of-root");
    let put = run(&format!(
        "put -b {} web1:{}",
        file.display(),
        target.display()
    ));
    let put = Tmux::start(&put, (90, 20));
    put.shows(&[prompt]).await;
    put.text(ACCOUNT_PASSWORD);
    put.press(&["Enter"]);
    put.shows(&["created", "ended with 0"]).await;
    assert_eq!(std::fs::metadata(&target).unwrap().uid(), 0);

    let spawn = Tmux::start(&run("spawn -b web1 -- 'id -un; sleep 1'"), (90, 20));
    spawn.shows(&[prompt]).await;
    spawn.text(ACCOUNT_PASSWORD);
    spawn.press(&["Enter"]);
    spawn.shows(&["ended with 0"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_question_of_a_fleet_stays_on_the_terminal() {
    let host = Host::start(WITH_PASSWORD).await;
    host.sshd.alias(["web2"]);
    let run = format!(
        "{} --ssh-config {} --state-dir {} run -b web1,web2 -- 'echo here'",
        env!("CARGO_BIN_EXE_sshjobs"),
        host.sshd.ssh_config().display(),
        host.sshd.path("state").display()
    );

    let tmux = Tmux::start(&run, (100, 20));

    let prompt = "(all hosts of this run) password of worker for sudo:";
    tmux.shows(&[prompt]).await;
    // Longer than the interval in which progress is drawn.
    tokio::time::sleep(Duration::from_millis(700)).await;
    let screen = tmux.screen();
    let last = screen.trim_end().lines().last().unwrap_or_default();
    assert!(last.contains(prompt), "{screen}");
    tmux.text(ACCOUNT_PASSWORD);
    tmux.press(&["Enter"]);
    tmux.shows(&["| here", "ended with 0"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_person_behind_an_agent_is_asked_on_a_page() {
    let host = Host::start(WITH_PASSWORD).await;
    let can_open = json!({"elicitation": {"url": {}}});
    let mut client = McpClient::capable(&host.sshd.ssh_config(), can_open);
    let arguments = json!({"host": HOST, "command": "id -un", "become": "root"});
    let call = client.begin(
        "tools/call",
        json!({"name": "ssh_run", "arguments": arguments}),
    );

    let asked = client.asked("elicitation/create");
    let url = asked["params"]["url"].as_str().unwrap();
    let page = ureq::get(url).call().unwrap().into_body().read_to_string().unwrap();
    assert!(page.contains("password of worker for sudo"), "{page}");
    client.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept"}}));
    let form = page.split_once("name=form value=").unwrap().1.split('>').next().unwrap();
    ureq::post(url)
        .send_form([("form", form), ("answer", ACCOUNT_PASSWORD)])
        .unwrap();

    let reply = client.response(call);
    let result = &reply["result"]["structuredContent"];
    assert_eq!(result["head"], json!(["root"]), "{reply}");
    assert!(!reply.to_string().contains(ACCOUNT_PASSWORD));
    let again = client.ok("ssh_run", arguments);
    assert_eq!(
        again["head"],
        json!(["root"]),
        "the accepted password is kept"
    );
    let listed = client.ok("ssh_jobs", json!({}));
    assert_eq!(listed["jobs"][0]["become"], "root", "{listed}");
}

#[tokio::test]
async fn no_number_stands_for_a_user_that_a_rule_denies() {
    let host = Host::start(Rules {
        doas: "permit nopass worker\n",
        ..Rules::default()
    })
    .await;
    let policy = host.path("policy.toml");
    let rules = r#"
[[rules]]
name = "all"
commands = "any"
verbs = ["run", "spawn", "get", "jobs", "tail", "read"]

[[rules]]
name = "not root"
effect = "deny"
users = ["root"]
"#;
    std::fs::write(&policy, rules).unwrap();
    let server = Server::with(&host.sshd, &["--policy", &policy.display().to_string()]);
    let caller = server.caller(&host.sshd, "agent1", &[]);
    for user in ["0", "00", "+0", "root"] {
        let becoming = json!({
            "host": HOST, "command": "id -u", "become": user, "become_method": "doas",
        });
        let mut durable = becoming.clone();
        durable["durable"] = json!(true);
        let file = json!({
            "host": HOST, "path": "/etc/shadow", "become": user, "become_method": "doas",
        });
        for (verb, request) in [("run", &becoming), ("spawn", &durable), ("get", &file)] {
            let (status, reply) = caller.call(verb, request.clone());
            let expected = if user == "root" { 403 } else { 400 };
            assert_eq!(status, expected, "{verb} as {user}: {reply}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn over_http_a_file_is_read_and_written_as_root() {
    let host = Host::start(WITHOUT_PASSWORD).await;
    let server = Server::start(&host.sshd);
    let caller = server.caller(&host.sshd, "ci", &[]);
    let file = host.path("home/of-root");
    std::fs::write(&file, "root's\n").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let address = format!("{}/v1/hosts/{HOST}/files{}", caller.url, file.display());
    let bearer = format!("Authorization: Bearer {}", caller.token);
    let curl = |arguments: &[&str], query: &str| {
        let told = process::Command::new("curl")
            .args(["-sS", "-w", " %{http_code}", "-H", &bearer])
            .args(arguments)
            .arg(format!("{address}{query}"))
            .output()
            .unwrap();
        String::from_utf8(told.stdout).unwrap()
    };

    assert!(curl(&[], "").ends_with(" 403"));
    assert_eq!(curl(&[], "?become=root"), "root's\n 200");
    assert!(curl(&[], "?colour=red").ends_with(" 400"));
    let new = host.path("new");
    std::fs::write(&new, "changed\n").unwrap();
    let upload = ["-T", new.to_str().unwrap()];
    assert!(curl(&upload, "").ends_with(" 403"));
    assert!(curl(&upload, "?become=root").ends_with(" 200"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "changed\n");
    assert_eq!(std::fs::metadata(&file).unwrap().uid(), 0);
}

//! Hosts as they are: each script of `fixtures/hosts/` prepares one, on which an ordinary user starts, follows,
//! signals and inspects jobs and copies files. The next oddity of a host is one more script and one more row.
//!
//! The hosts have their own /etc, mounts and processes, which takes root.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use sshjobs_core::jobs::{
    Access, Command, Config, Error, FileSource, GetOptions, HostPath, Jobs, Outcome, PutOptions,
    RemotePath, Signal, TransferProgress, TreeOptions,
};
use support::{HOST, Namespace, Sshd, eventually};
use tokio::time::timeout;

/// Time limit for each thing that is tried.
const PATIENCE: Duration = Duration::from_secs(40);

/// What works on a host.
#[derive(Clone, Copy)]
struct Expected {
    commands: Commands,
    durable: Durable,
    files: bool,
    /// Whether the host says which machine it is, so that another process may signal the job. In a container
    /// whose first process is hidden it can't.
    is_known: bool,
    /// Whether its processes can be inspected.
    has_proc: bool,
}

/// What becomes of a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Commands {
    Run,
    /// The account has no shell: a message of the host, and an exit status.
    Refused,
    /// The command does not run, which is said in time.
    TakenAway,
}

/// How a durable job ends up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Durable {
    Runs,
    NotTried,
    /// The error has these words.
    RefusedBecause(&'static str),
}

const ALL: Expected = Expected {
    commands: Commands::Run,
    durable: Durable::Runs,
    files: true,
    is_known: true,
    has_proc: true,
};
const FILES_ONLY: Expected = Expected {
    commands: Commands::Refused,
    durable: Durable::NotTried,
    ..ALL
};
const TAKEN_AWAY: Expected = Expected {
    commands: Commands::TakenAway,
    durable: Durable::NotTried,
    files: false,
    ..ALL
};
const IN_A_CONTAINER_THAT_HIDES: Expected = Expected {
    is_known: false,
    ..ALL
};

/// On macOS and the BSDs, only ps tells about processes.
const LIKE_MACOS: Expected = Expected {
    is_known: false,
    has_proc: false,
    ..ALL
};

/// A host of `fixtures/hosts/`, and an account on it.
struct Host {
    sshd: Sshd,
    _namespace: Namespace,
    directory: tempfile::TempDir,
    uid: u32,
}

/// A user id for each host, so that each finds its own processes.
static NEXT_UID: AtomicU32 = AtomicU32::new(61_100);

impl Host {
    async fn start(name: &str) -> Self {
        let sshd = Sshd::start().await;
        let directory = tempfile::Builder::new().prefix("sshjobs-host").tempdir().unwrap();
        let uid = NEXT_UID.fetch_add(1, Relaxed) + std::process::id() % 997 * 40;
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::copy(
            sshd.path("id.pub"),
            directory.path().join("authorized_keys"),
        )
        .unwrap();
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/hosts");
        let script = format!(". {}", fixtures.join("setup").display());
        let host = fixtures.join(format!("{name}.sh"));
        let uid_word = uid.to_string();
        // Without SHLVL and a state directory of its own: the startup files and the home directory are the host's.
        let config = std::fs::read_to_string(sshd.path("sshd_config")).unwrap();
        let config: String = config
            .lines()
            .filter(|line| !line.starts_with("SetEnv"))
            .map(|line| format!("{line}\n"))
            .collect();
        std::fs::write(sshd.path("sshd_config"), config).unwrap();
        let arguments = [directory.path(), &host, Path::new(&uid_word)];
        let namespace = Namespace::start(&sshd, &script, &arguments).await;
        sshd.append("  User worker\n");
        Self {
            sshd,
            _namespace: namespace,
            directory,
            uid,
        }
    }

    fn jobs(&self) -> Jobs {
        let config = Config {
            state_dir: Some(self.sshd.path("state")),
            store: true,
            ..self.sshd.config()
        };
        Jobs::new(config, Access::Listed)
    }

    /// Command lines of the account's processes, except those of sshd.
    fn processes(&self) -> Vec<String> {
        let all = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        all.filter(|process| process.metadata().is_ok_and(|found| found.uid() == self.uid))
            .filter_map(|process| std::fs::read(process.path().join("cmdline")).ok())
            .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
            .filter(|line| !line.is_empty() && !line.starts_with("sshd"))
            .collect()
    }

    fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let file = file_of(self, &RemotePath::new(b"/tmp/file".to_vec()).unwrap());
        let file = file.to_string();
        // A host without files has made none.
        std::fs::remove_file(&file).ok();
        std::fs::remove_dir_all(format!("{file}-tree")).ok();
    }
}

/// Runs a command to its end: its lines, and how it ended.
async fn output(jobs: &Jobs, command: &str) -> Result<(String, Outcome), Error> {
    let mut following = jobs.follow(HOST, Command::shell(command)).await?;
    let mut stdout = Vec::new();
    loop {
        let piece = following.next().await;
        stdout.extend_from_slice(&piece.stdout);
        if let Some(outcome) = piece.outcome {
            return Ok((String::from_utf8(stdout).unwrap(), outcome));
        }
    }
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future)
        .await
        .unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"))
}

async fn check(name: &str, expected: Expected) {
    let host = Host::start(name).await;
    let jobs = host.jobs();
    check_commands(&jobs, expected.commands).await;
    match expected.durable {
        Durable::Runs => {
            check_durable(&jobs).await;
            check_input(&jobs).await;
            if expected.has_proc {
                check_signal_and_inspect(&host, &jobs, expected.is_known).await;
            } else {
                check_without_proc(&jobs).await;
            }
        }
        Durable::RefusedBecause(words) => {
            let start = jobs.spawn(HOST, Command::shell("true").durable());
            let error = sshjobs_wire::Error::from(within("start", start).await.unwrap_err());
            assert!(error.message.contains(words), "{error:?}");
        }
        Durable::NotTried => {}
    }
    if expected.files {
        check_files(&host, &jobs).await;
    }
    jobs.shutdown().await;
    eventually("no process of the account is left", async || {
        host.processes().is_empty()
    })
    .await;
}

async fn check_commands(jobs: &Jobs, commands: Commands) {
    let ran = within("run", output(jobs, "echo it; exit 3")).await;
    match commands {
        Commands::Run => {
            let (stdout, outcome) = ran.unwrap();
            assert!(stdout.ends_with("it\n"), "{stdout}");
            assert_eq!(outcome.exit_status(), Some(3));
        }
        Commands::Refused => {
            let (stdout, outcome) = ran.unwrap();
            assert!(!stdout.ends_with("it\n"), "{stdout}");
            assert_ne!(outcome.exit_status(), Some(0));
        }
        Commands::TakenAway => {
            let error = sshjobs_wire::Error::from(ran.unwrap_err());
            assert!(error.message.contains("startup file"), "{error:?}");
        }
    }
}

async fn check_durable(jobs: &Jobs) {
    let command = "echo out; echo err >&2; sleep 0.3; echo late; exit 4";
    let job = within("start", jobs.spawn(HOST, Command::shell(command).durable()))
        .await
        .unwrap();
    let outcome = within("the end", job.wait()).await;

    let readable = job.readable(sshjobs_policy::Verb::Read).await.unwrap();
    let lines = readable.last_lines(10, 1000);
    assert_eq!(outcome.exit_status(), Some(4), "{outcome:?} {lines:?}");
    for line in ["out", "err", "late"] {
        assert!(lines.iter().any(|shown| shown == line), "{line}: {lines:?}");
    }
    within("forget", job.forget()).await.unwrap();
}

/// Stdin of a durable job stays open, and its variables are the account's.
async fn check_input(jobs: &Jobs) {
    let command = "answer=$(head -n 1); echo \"got $answer\"; env | grep -c '^sj_'";
    let command = Command::shell(command).durable().stdin(sshjobs_core::jobs::Stdin::Open);
    let job = within("start", jobs.spawn(HOST, command)).await.unwrap();
    // Longer than TMOUT of the hosts that have one.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    within("write", job.write(b"hello\n", PATIENCE)).await.unwrap();

    within("the end", job.wait()).await;

    let readable = job.readable(sshjobs_policy::Verb::Read).await.unwrap();
    let lines = readable.last_lines(10, 1000);
    assert!(lines.contains(&"got hello".to_owned()), "{lines:?}");
    assert!(
        lines.contains(&"0".to_owned()),
        "variables of the script: {lines:?}"
    );
}

/// Neither are processes described, nor does a signal reach them; both is said.
async fn check_without_proc(jobs: &Jobs) {
    let command = Command::shell("read -r go; exit 5");
    let command = command.durable().stdin(sshjobs_core::jobs::Stdin::Open);
    let job = within("start", jobs.spawn(HOST, command)).await.unwrap();
    let processes = within("inspect", job.processes()).await;
    assert!(matches!(processes, Ok(None)), "{processes:?}");
    let report = within("signal", job.signal(Signal::KILL, None)).await.unwrap();
    assert!(!report.confirmed_dead, "{report:?}");
    within("write", job.write(b"go\n", PATIENCE)).await.unwrap();
    let outcome = within("the end", job.wait()).await;
    assert_eq!(outcome.exit_status(), Some(5), "{outcome:?}");
    within("forget", job.forget()).await.unwrap();
}

async fn check_signal_and_inspect(host: &Host, jobs: &Jobs, is_known: bool) {
    let command = Command::shell("sleep 1234 & wait").durable().timeout(PATIENCE * 10);
    let job = within("start", jobs.spawn(HOST, command)).await.unwrap();
    eventually("the command runs", async || {
        host.processes().iter().any(|line| line.contains("sleep 1234"))
    })
    .await;

    let processes = within("inspect", job.processes()).await.unwrap().unwrap();
    let is_ours = |line: &str| line.contains("sleep 1234");
    let shown = format!("{processes:?}");
    assert!(is_ours(&shown), "{shown}");
    // By another process, which has to know that it is the same machine.
    let others = host.jobs();
    let same = if is_known {
        within("look", others.job(job.id())).await.unwrap()
    } else {
        job.clone()
    };
    let report = within("signal", same.signal(Signal::KILL, None)).await.unwrap();
    // Hidden processes can't be looked at: it is said that this is not verified.
    assert!(report.confirmed_dead || !is_known, "{report:?}");
    within("the end", job.wait()).await;
    assert!(!host.processes().iter().any(|line| is_ours(line)));
    others.shutdown().await;
    within("forget", job.forget()).await.unwrap();
}

async fn check_files(host: &Host, jobs: &Jobs) {
    let progress = Arc::new(TransferProgress::default());
    let file = RemotePath::new(b"/tmp/file".to_vec()).unwrap();
    let file = file_of(host, &file);
    let at = HostPath {
        host: HOST,
        path: &file,
    };
    let content = FileSource::Memory(b"content\0".to_vec().into());
    let options = PutOptions::default();
    let put = jobs.put_file(at, content, &options, &progress);
    within("put", put).await.unwrap();
    let back = host.sshd.path("back");
    let got = jobs.get_file(at, &back, GetOptions::default(), &progress);
    within("get", got).await.unwrap();
    assert_eq!(std::fs::read(&back).unwrap(), b"content\0");

    let tree = host.sshd.path("tree");
    std::fs::create_dir_all(tree.join("below")).unwrap();
    std::fs::write(tree.join("below/leaf"), "leaf\n").unwrap();
    let there = RemotePath::new([file.as_bytes(), b"-tree"].concat()).unwrap();
    let at = HostPath {
        host: HOST,
        path: &there,
    };
    let put = jobs.put_tree(&tree, at, TreeOptions::default(), &progress);
    let put = within("put -r", put).await.unwrap();
    assert!(put.failed.is_empty(), "{put:?}");
    let back = host.sshd.path("tree-back");
    let got = jobs.get_tree(at, &back, TreeOptions::default(), &progress);
    within("get -r", got).await.unwrap();
    assert_eq!(
        std::fs::read_to_string(back.join("below/leaf")).unwrap(),
        "leaf\n"
    );
}

/// A path that the account can write.
fn file_of(host: &Host, file: &RemotePath) -> RemotePath {
    let name = host.path("x");
    let unique = name.parent().unwrap().file_name().unwrap().to_str().unwrap();
    RemotePath::new([file.as_bytes(), b"-", unique.as_bytes()].concat()).unwrap()
}

/// Each row: the name of a test, its host, and what works there.
macro_rules! hosts {
    ($($(#[$attribute:meta])* $test:ident: $host:literal => $expected:expr;)*) => {$(
        $(#[$attribute])*
        #[tokio::test(flavor = "multi_thread")]
        async fn $test() {
            check($host, $expected).await;
        }
    )*};
}

hosts! {
    a_host_with_nothing_unusual: "plain" => ALL;
    processes_of_others_are_numbers: "hidepid-1" => IN_A_CONTAINER_THAT_HIDES;
    processes_of_others_are_hidden: "hidepid-2" => IN_A_CONTAINER_THAT_HIDES;
    sessions_time_out_and_sh_is_bash: "tmout" => ALL;
    sessions_time_out_and_sh_is_ksh93: "tmout-ksh93" => ALL;
    perl_reads_utf8: "perl-unicode" => ALL;
    perl_reads_utf8_by_perlio: "perlio-utf8" => ALL;
    perl_lacks_a_module: "perl5opt-missing" => ALL;
    perl_is_a_shim: "perl-shim" => ALL;
    setsid_is_a_shim: "setsid-shim" => ALL;
    neither_setsid_nor_proc_is_there: "like-macos" => LIKE_MACOS;
    neither_setsid_nor_proc_nor_perl_is_there: "like-macos-without-perl" => LIKE_MACOS;
    sh_is_ksh93: "sh-is-ksh93" => ALL;
    sh_is_bash: "sh-is-bash" => ALL;
    sh_is_busybox: "sh-is-busybox" => ALL;
    sh_is_mksh: "sh-is-mksh" => ALL;
    a_signal_is_ignored_by_all: "term-ignored" => ALL;
    startup_files_print: "startup-prints" => ALL;
    startup_files_are_strict: "startup-strict" => ALL;
    variables_change_helper_programs: "grep-options" => ALL;
    the_home_directory_is_missing: "home-missing" => ALL;
    the_home_directory_is_read_only: "home-read-only" => ALL;
    the_home_directory_runs_nothing: "home-noexec" => ALL;
    a_link_is_in_place_of_the_spool: "var-tmp-taken" => Expected {
        durable: Durable::RefusedBecause("is a link or belongs to another user"),
        ..ALL
    };
    the_account_may_write_no_file: "limit-file-size" => Expected {
        durable: Durable::RefusedBecause("cannot open"),
        files: false,
        ..ALL
    };
    the_account_may_start_no_process: "limit-processes" => Expected {
        durable: Durable::RefusedBecause("Cannot fork"),
        files: false,
        ..ALL
    };
    the_account_has_no_shell: "nologin" => FILES_ONLY;
    the_server_has_files_only: "sftp-only" => FILES_ONLY;
    a_startup_file_becomes_fish: "startup-exec-fish" => TAKEN_AWAY;
    a_startup_file_becomes_bash: "startup-exec-bash" => TAKEN_AWAY;
    a_startup_file_ends_the_shell: "startup-exit" => TAKEN_AWAY;
}

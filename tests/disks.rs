//! Disks that are full or can't be written, on our side and on the host's; hosts without memory or without
//! an SFTP server.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sshjobs_core::jobs::{
    FileChange, FileSource, HostPath, Limits, LocalFile, PutOptions, RemotePath, TransferProgress,
    TreeOptions, Verified,
};
use sshjobs_wire::{
    Code, DetailArg, EditArg, EndReason, JobState, JobsRequest, PutRequest, Service, TailRequest,
};
use support::disk::Disk;
use support::server::Server;
use support::{
    HOST, Namespace, Sshd, Story, canonical_loop, durable, eventually, run, spawn, stored_service,
};

fn service(sshd: &Sshd, state: &Path) -> Service {
    stored_service(
        sshd.ssh_config(),
        state.to_owned(),
        Limits {
            ring_buffer_lines: 1000,
            ..Limits::default()
        },
    )
}

#[tokio::test]
async fn a_full_local_disk_stops_no_job_and_storing_resumes_when_there_is_space() {
    let sshd = Sshd::start().await;
    let disk = Disk::mount(sshd.path("state"), "size=4m,mode=700");
    let service = service(&sshd, disk.path());
    let [disk_is_full, disk_has_space] = ["full", "space"].map(|name| sshd.path(name));
    // While the disk is full, output keeps coming: the end of a burst may fit in the last page of a
    // file, and then the trouble is over.
    let command = format!(
        "echo first; while ! [ -e {full} ]; do sleep 0.05; done; bursts=0; \
         while ! [ -e {space} ]; do seq 2000; bursts=$((bursts + 1)); sleep 0.1; done; \
         echo $bursts; seq 5000; exit 3",
        full = disk_is_full.display(),
        space = disk_has_space.display()
    );
    let job = spawn(&service, &command).await;
    let look = async || service.tail(TailRequest::new(&job, 0, 0)).await.unwrap();
    eventually("the first line has arrived", async || {
        look().await.total_lines == 1
    })
    .await;
    assert_eq!(look().await.standing.unstored, None);
    let ballast = disk.fill();
    std::fs::write(&disk_is_full, "").unwrap();
    eventually("the full disk is noticed", async || {
        let unstored = look().await.standing.unstored;
        unstored.is_some_and(|why| why.contains("No space left"))
    })
    .await;
    std::fs::remove_file(ballast).unwrap();
    std::fs::write(&disk_has_space, "").unwrap();
    let story = canonical_loop(&service, &job).await;
    let last = story.last.as_ref().unwrap();
    assert_eq!(
        (story.status(), last.standing.unstored.as_deref()),
        (Some(3), None)
    );
    assert_eq!(story.lines[0], "first");
    let (before_end, end) = story.lines.split_at(story.lines.len() - 5000);
    assert!((1..=5000).map(|number| number.to_string()).eq(end.iter().cloned()));
    let bursts: u64 = before_end.last().unwrap().parse().unwrap();
    let total = 1 + bursts * 2000 + 1 + 5000;
    let all_of = |story: &Story| story.lines.len() as u64 + story.dropped;
    assert_eq!(all_of(&story), total, "missing lines are counted");
    service.shutdown().await;
    let later = self::service(&sshd, disk.path());
    let again = canonical_loop(&later, &job).await;
    assert_eq!(again.status(), Some(3));
    assert_eq!(&again.lines[again.lines.len() - 5000..], end);
    assert_eq!(all_of(&again), total);
    later.shutdown().await;
}

#[tokio::test]
async fn a_durable_job_loses_no_line_while_the_disk_is_full_for_some_seconds() {
    let sshd = Sshd::start().await;
    let disk = Disk::mount(sshd.path("state"), "size=4m,mode=700");
    let service = service(&sshd, disk.path());
    let has_space = sshd.path("space");
    let command = format!(
        "lines=0; while ! [ -e {space} ]; do lines=$((lines + 1)); echo $lines; done; echo end",
        space = has_space.display()
    );
    let job = service.spawn(durable(&command)).await.unwrap().job_id;
    let look = async || service.tail(TailRequest::new(&job, 0, 0)).await.unwrap();
    eventually("some lines are stored", async || {
        look().await.total_lines > 10
    })
    .await;
    let ballast = disk.fill();
    eventually("the full disk is noticed", async || {
        let unstored = look().await.standing.unstored;
        unstored.is_some_and(|why| why.contains("No space left"))
    })
    .await;
    std::fs::remove_file(ballast).unwrap();
    std::fs::write(&has_space, "").unwrap();

    let story = canonical_loop(&service, &job).await;
    service.shutdown().await;
    let later = self::service(&sshd, disk.path());
    let again = canonical_loop(&later, &job).await;
    later.shutdown().await;

    let (end, numbers) = story.lines.split_last().unwrap();
    assert_eq!(end, "end");
    assert!(numbers.iter().enumerate().all(|(index, line)| *line == (index + 1).to_string()));
    assert_eq!((story.dropped, again.dropped), (0, 0));
    assert_eq!(story.lines, again.lines);
}

#[tokio::test]
async fn a_job_that_fills_its_hosts_disk_still_tells_how_it_ended() {
    let sshd = Sshd::start().await;
    let _disk = Disk::mount(sshd.path("on-the-host"), "size=2m,mode=700");
    let service = service(&sshd, &sshd.path("state"));
    // The first job installs the scripts, and leaves room for the first files of the second.
    service.spawn(durable("true")).await.unwrap();
    let job = service.spawn(durable("seq 1000000; exit 9")).await.unwrap().job_id;
    let story = canonical_loop(&service, &job).await;
    assert_eq!((story.state(), story.status()), (JobState::Exited, Some(9)));
    assert!(
        story.lines.len() > 1000 && story.lines.len() < 1_000_000,
        "{}",
        story.lines.len()
    );
    assert!(
        story
            .lines
            .iter()
            .enumerate()
            .take(1000)
            .all(|(index, line)| *line == (index + 1).to_string())
    );
    service.shutdown().await;
}

/// A host on which nothing can be written, neither at home ("$3") nor in /var/tmp.
const READ_ONLY: &str = r#"
for d in "$3" /var/tmp; do mount -t tmpfs -o ro none "$d" || exit; done
exec /usr/sbin/sshd -D -e -p "$1" -f "$2" -o "ListenAddress=127.0.0.1:$1"
"#;

#[tokio::test]
async fn a_host_that_can_not_be_written_says_so_and_runs_attached_jobs() {
    let sshd = Sshd::start().await;
    let home = sshd.path("on-the-host");
    std::fs::create_dir_all(&home).unwrap();
    let _host = Namespace::start(&sshd, READ_ONLY, &[&home]).await;
    let service = service(&sshd, &sshd.path("state"));
    let error = service.spawn(durable("true")).await.unwrap_err();
    assert!(
        matches!(error.code, Code::Io | Code::Unsupported),
        "{error:?}"
    );
    assert!(error.message.contains("Read-only file system"), "{error:?}");
    assert_eq!(
        run(&service, "echo attached").await.unwrap().head,
        ["attached"]
    );
    service.shutdown().await;
}

#[tokio::test]
async fn a_full_or_read_only_disk_of_the_host_leaves_the_old_file() {
    let sshd = Sshd::start().await;
    let service = stored_service(sshd.ssh_config(), sshd.path("state"), Limits::default());
    let disk = Disk::mount(sshd.path("disk"), "size=1m");
    let file = disk.path().join("file");
    std::fs::write(&file, "old").unwrap();
    let put = |text: String| PutRequest {
        host: Some(HOST.to_owned()),
        path: file.display().to_string(),
        text: Some(text),
        ..PutRequest::default()
    };
    let error = service.put(put("x".repeat(3 << 20))).await.unwrap_err();
    assert_eq!(error.code, Code::DiskFull, "{error}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "old");
    let names: Vec<_> = std::fs::read_dir(disk.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "no part file is left");

    // The host frees the room of a removed file when it has closed it.
    let attempts = std::sync::atomic::AtomicUsize::new(5000);
    eventually("no new file fits", async || {
        let ballast = disk.fill();
        // Another content each time: the same would be found there already.
        let length = attempts.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let put = service.put(put("y".repeat(length))).await;
        std::fs::remove_file(ballast).unwrap();
        put.is_err_and(|error| error.code == Code::DiskFull)
    })
    .await;
    service.put(put("new".to_owned())).await.unwrap();

    eventually("the disk can be made read-only", async || {
        let mut mount = Command::new("mount");
        mount.args(["-o", "remount,ro"]).arg(disk.path()).stderr(Stdio::null());
        mount.status().unwrap().success()
    })
    .await;
    let error = service.put(put("newer".to_owned())).await.unwrap_err();
    assert!(error.to_string().contains("can't write"), "{error}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
}

#[tokio::test]
async fn a_file_that_is_mounted_by_itself_is_written_in_place() {
    let sshd = Sshd::start().await;
    let service = stored_service(sshd.ssh_config(), sshd.path("state"), Limits::default());
    let disk = Disk::mount(sshd.path("disk"), "size=4m");
    let [file, mounted] = ["file", "mounted"].map(|name| disk.path().join(name));
    std::fs::write(&file, "x".repeat(300_000)).unwrap();
    std::fs::write(&mounted, "").unwrap();
    let _mount = BindMount::new(&file, &mounted);
    let identity = || std::fs::metadata(&mounted).unwrap().ino();
    let before = identity();
    let put = |text: &str, in_place| PutRequest {
        host: Some(HOST.to_owned()),
        path: mounted.display().to_string(),
        text: Some(text.to_owned()),
        in_place,
        ..PutRequest::default()
    };
    // Pieces of zeros are not sent.
    let text = format!("begin{}end", "\0".repeat(270_000));

    let error = service.put(put(&text, false)).await.unwrap_err();
    assert_eq!(error.code, Code::PermissionDenied, "{error:?}");
    assert!(error.to_string().contains("in_place"), "{error}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "x".repeat(300_000));
    let written = service.put(put(&text, true)).await.unwrap();

    assert_eq!((written.size, identity()), (text.len() as u64, before));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    let again = service.put(put(&text, true)).await.unwrap();
    assert_eq!(again.change.as_deref(), Some("unchanged"));
    let both = PutRequest {
        backup: true,
        ..put("other", true)
    };
    assert_eq!(
        service.put(both).await.unwrap_err().code,
        Code::InvalidArgument
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    service.shutdown().await;
}

/// A file that is mounted over another one, until this is dropped.
struct BindMount(PathBuf);

impl BindMount {
    fn new(file: &Path, over: &Path) -> Self {
        let mut mount = Command::new("mount");
        assert!(mount.arg("--bind").arg(file).arg(over).status().unwrap().success());
        Self(over.to_owned())
    }
}

impl Drop for BindMount {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(&self.0).status().ok();
    }
}

/// A host without an SFTP server.
const WITHOUT_SFTP: &str = r#"
for server in /usr/lib/openssh/sftp-server /usr/libexec/openssh/sftp-server /usr/lib/sftp-server; do
  [ ! -e "$server" ] || mount --bind /dev/null "$server" || exit
done
exec /usr/sbin/sshd -D -e -p "$1" -f "$2" -o "ListenAddress=127.0.0.1:$1"
"#;

#[tokio::test]
async fn files_are_copied_and_edited_on_a_host_without_an_sftp_server() {
    let sshd = Sshd::with("Subsystem other /bin/false").await;
    let _host = Namespace::start(&sshd, WITHOUT_SFTP, &[]).await;
    let service = service(&sshd, &sshd.path("state"));
    let jobs = service.library();
    let far = |name: &str| {
        RemotePath::new(sshd.path(name).to_str().unwrap().as_bytes().to_vec()).unwrap()
    };
    let content: Vec<u8> = (0..=u8::MAX).cycle().take(1_000_003).collect();
    let local = sshd.path("local");
    std::fs::write(&local, &content).unwrap();
    let source = || {
        let opened = std::fs::File::open(&local).unwrap();
        FileSource::File(LocalFile::open(&local, opened).unwrap())
    };
    let (path, progress) = (far("new\nline"), TransferProgress::default());
    let place = HostPath {
        host: HOST,
        path: &path,
    };
    let options = PutOptions {
        mode: Some(0o640),
        ..PutOptions::default()
    };

    let put = jobs.put_file(place, source(), &options, &progress).await.unwrap();
    assert_eq!(
        (put.change, put.verified),
        (FileChange::Created, Verified::BySha256)
    );
    let written = std::fs::metadata(sshd.path("new\nline")).unwrap();
    assert_eq!(written.permissions().mode() & 0o777, 0o640);
    assert_eq!(std::fs::read(sshd.path("new\nline")).unwrap(), content);
    let again = jobs.put_file(place, source(), &options, &progress).await.unwrap();
    assert_eq!(again.change, FileChange::Unchanged);

    let back = sshd.path("back");
    let got = jobs.get_file(place, &back, Default::default(), &progress).await.unwrap();
    assert_eq!(got.verified, Verified::BySha256);
    assert_eq!(std::fs::read(&back).unwrap(), content);

    let text = sshd.path("text");
    std::fs::write(&text, "one\ntwo\n").unwrap();
    let edit = |old: &str, if_sha256| PutRequest {
        host: Some(HOST.to_owned()),
        path: text.display().to_string(),
        edits: vec![EditArg {
            old: old.to_owned(),
            new: "three".to_owned(),
        }],
        if_sha256,
        ..PutRequest::default()
    };
    service.put(edit("two", None)).await.unwrap();
    assert_eq!(std::fs::read_to_string(&text).unwrap(), "one\nthree\n");
    let refused = service.put(edit("one", Some("0".repeat(64)))).await.unwrap_err();
    assert_eq!(refused.code, Code::ChangedMeanwhile);

    service.shutdown().await;
}

#[tokio::test]
async fn a_directory_is_copied_to_a_host_without_an_sftp_server_and_back() {
    let sshd = Sshd::with("Subsystem other /bin/false").await;
    let _host = Namespace::start(&sshd, WITHOUT_SFTP, &[]).await;
    let service = service(&sshd, &sshd.path("state"));
    let jobs = service.library();
    let there = sshd.path("there").to_str().unwrap().as_bytes().to_vec();
    let there = RemotePath::new(there).unwrap();
    let progress = std::sync::Arc::new(TransferProgress::default());
    let tree = sshd.path("tree");
    std::fs::create_dir_all(tree.join("a/empty")).unwrap();
    for number in 0..60 {
        std::fs::write(tree.join(format!("a/{number}")), number.to_string()).unwrap();
    }
    std::os::unix::fs::symlink("a/1", tree.join("link")).unwrap();
    let options = TreeOptions {
        without_tar: true,
        ..TreeOptions::default()
    };
    let place = HostPath {
        host: HOST,
        path: &there,
    };
    let report = jobs.put_tree(&tree, place, options, &progress).await.unwrap();
    assert_eq!((report.written, report.failed.len()), (60, 0), "{report:?}");
    let copy = sshd.path("copy");
    let report = jobs.get_tree(place, &copy, options, &progress).await.unwrap();
    assert_eq!((report.written, report.failed.len()), (60, 0), "{report:?}");
    let same = Command::new("diff").arg("-r").arg(&tree).arg(&copy).status().unwrap();
    assert!(same.success());
    assert_eq!(
        std::fs::read_link(copy.join("link")).unwrap(),
        Path::new("a/1")
    );
    let leftovers = std::fs::read_dir(sshd.path("")).unwrap().flatten();
    for entry in leftovers {
        let name = entry.file_name();
        assert!(!name.to_string_lossy().contains(".sshjobs-"), "{name:?}");
    }
    service.shutdown().await;
}

#[tokio::test]
async fn readiness_tells_that_the_audit_log_can_not_be_written() {
    let sshd = Sshd::start().await;
    let disk = Disk::mount(sshd.path("audit"), "size=1m,mode=700");
    let policy = sshd.path("policy.toml");
    std::fs::write(&policy, recording_policy(disk.path(), "refuse")).unwrap();
    let server = Server::with(&sshd, &["--policy", &policy.display().to_string()]);
    let caller = server.caller(&sshd, "ci", &[]);
    let readiness = || caller.get("/readyz").body_mut().read_to_string().unwrap();
    let run = |text: &str| {
        let command = format!("echo {text}");
        caller.call("run", serde_json::json!({"host": HOST, "command": command})).0
    };
    assert_eq!((run("before"), readiness().as_str()), (200, "ready\n"));

    let ballast = disk.fill();
    assert_eq!(run(&"x".repeat(8000)), 503);
    assert!(readiness().contains("the audit log can't be written"));

    std::fs::remove_file(ballast).unwrap();
    assert_eq!((run("after"), readiness().as_str()), (200, "ready\n"));
}

#[tokio::test]
async fn readiness_and_metrics_tell_that_nothing_can_be_stored_and_that_it_can_again() {
    let sshd = Sshd::start().await;
    let disk = Disk::mount(sshd.path("state"), "size=4m,mode=700");
    let server = Server::start(&sshd);
    let ready = || {
        let request = ureq::get(format!("{}/readyz", server.url));
        request
            .config()
            .http_status_as_error(false)
            .build()
            .call()
            .unwrap()
            .status()
            .as_u16()
    };
    let has = |line: &str| {
        let mut reply = ureq::get(&server.metrics).call().unwrap();
        let text = reply.body_mut().read_to_string().unwrap();
        text.lines().any(|found| found == line)
    };
    eventually("the server is ready", async || ready() == 200).await;
    assert!(has("sshjobs_store_usable 1"));

    let ballast = disk.fill();
    eventually("it is not ready on a full disk", async || ready() == 503).await;
    assert!(has("sshjobs_store_usable 0"));
    std::fs::remove_file(ballast).unwrap();
    eventually("it is ready when there is room", async || ready() == 200).await;
    assert!(has("sshjobs_store_usable 1"));

    let records = sshd.path("state/sshjobs/jobs.db");
    std::fs::rename(&records, records.with_extension("moved")).unwrap();
    eventually("it is not ready without its records", async || {
        ready() == 503
    })
    .await;
}

#[tokio::test]
async fn a_server_does_not_start_on_a_full_disk() {
    let sshd = Sshd::start().await;
    let disk = Disk::mount(sshd.path("state"), "size=1m,mode=700");
    let ballast = disk.fill();

    let serve = ["serve", "--http", "127.0.0.1:0", "--no-auth"];
    let ended = support::command::sshjobs(&sshd, &serve);

    let words = String::from_utf8_lossy(&ended.stderr);
    assert!(
        !ended.status.success() && words.contains("No space left"),
        "{words}"
    );
    std::fs::remove_file(ballast).unwrap();
    drop(Server::start(&sshd));
}

/// A policy that allows everything and records it in this directory.
fn recording_policy(log: &Path, on_failure: &str) -> String {
    format!(
        "[[rules]]\nname = \"all\"\ncommands = \"any\"\n\
         [audit]\nfile = \"{log}/audit.jsonl\"\nkey = \"{log}.key\"\non_failure = \"{on_failure}\"\n",
        log = log.display()
    )
}

#[tokio::test]
async fn a_call_that_a_full_disk_does_not_record_is_refused_or_warned_about() {
    for (on_failure, is_performed) in [("refuse", false), ("warn", true)] {
        let sshd = Sshd::start().await;
        let disk = Disk::mount(sshd.path("audit"), "size=1m,mode=700");
        let policy = sshd.path("policy.toml");
        std::fs::write(&policy, recording_policy(disk.path(), on_failure)).unwrap();
        let policy = policy.display().to_string();
        let sshjobs = |words: &[&str]| {
            support::command::sshjobs(&sshd, &[&["--policy", policy.as_str()], words].concat())
        };
        let touch = |name: &str| format!("touch {}", sshd.path(name).display());
        assert!(sshjobs(&["run", HOST, "--", &touch("before")]).status.success());

        let ballast = disk.fill();
        // Longer than the rest of the log's last block.
        let long = format!("{}; : {}", touch("full"), "x".repeat(8000));
        let full = sshjobs(&["run", HOST, "--", &long]);
        let words = String::from_utf8_lossy(&full.stderr).into_owned();
        assert_eq!(full.status.success(), is_performed, "{words}");
        assert_eq!(words.contains("audit_failed"), !is_performed, "{words}");
        assert_eq!(sshd.path("full").exists(), is_performed);

        std::fs::remove_file(ballast).unwrap();
        assert!(sshjobs(&["run", HOST, "--", &touch("after")]).status.success());
        let checked = sshjobs(&["audit", "verify"]);
        assert!(
            checked.status.success(),
            "{}",
            String::from_utf8_lossy(&checked.stderr)
        );
    }
}

/// A control group whose processes may use little memory. Removed when dropped.
struct MemoryLimit(PathBuf);

impl MemoryLimit {
    /// `None` if this machine has no memory controller that root may use.
    fn new(bytes: u64) -> Option<Self> {
        // Version 1 limits memory and swap together, version 2 each of them.
        let version_1 = (
            "/sys/fs/cgroup/memory",
            ("memory.limit_in_bytes", bytes),
            ("memory.memsw.limit_in_bytes", bytes),
        );
        let version_2 = (
            "/sys/fs/cgroup",
            ("memory.max", bytes),
            ("memory.swap.max", 0),
        );
        let places = [version_1, version_2];
        places.into_iter().find_map(|(root, (memory, most), (swap, most_swap))| {
            let group = Path::new(root).join(format!("sshjobs-test-{}", std::process::id()));
            std::fs::create_dir(&group).ok()?;
            let limit = Self(group);
            std::fs::write(limit.0.join(memory), most.to_string()).ok()?;
            // Otherwise the process would be swapped out. Fails on kernels that do not count swap.
            std::fs::write(limit.0.join(swap), most_swap.to_string()).ok();
            Some(limit)
        })
    }

    fn add(&self, pid: &str) {
        // Fails if the process has ended meanwhile.
        std::fs::write(self.0.join("cgroup.procs"), pid).ok();
    }
}

impl Drop for MemoryLimit {
    #[expect(
        clippy::disallowed_methods,
        reason = "a destructor can't wait otherwise"
    )]
    fn drop(&mut self) {
        // Fails while a process of the test is still ending.
        for _ in 0..50 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
}

#[tokio::test]
async fn a_job_that_the_kernel_killed_because_memory_ran_out_says_so() {
    // Before the sshd, so that it is removed after the sshd's processes have ended.
    let Some(limit) = MemoryLimit::new(64 << 20) else {
        eprintln!("NOT TESTED: root may not limit the memory of processes on this machine");
        return;
    };
    let sshd = Sshd::start().await;
    let config = sshd.path("sshd_config");
    let found = Command::new("pgrep").arg("-f").arg(&config).output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    found.lines().for_each(|pid| limit.add(pid));
    let service = service(&sshd, &sshd.path("state"));

    let greedy = "perl -e '$x = q(a) x 200_000_000; sleep 60'";
    let job = service.spawn(durable(greedy)).await.unwrap().job_id;
    canonical_loop(&service, &job).await;
    let why = why(&service, &job).await;

    assert_eq!(why.cause, "out_of_memory", "{why:?}");
    assert!(why.memory_kills_on_host >= Some(1), "{why:?}");
    // Root reads the kernel's log, unless the machine hides it from its containers.
    assert!(
        why.summary.contains("(perl)") || why.summary.contains("control group"),
        "{why:?}"
    );
}

async fn why(service: &Service, job: &str) -> EndReason {
    let request = JobsRequest {
        job_id: Some(job.to_owned()),
        detail: Some(DetailArg::Processes),
        ..JobsRequest::default()
    };
    service.jobs(request).await.unwrap().jobs.remove(0).why.unwrap()
}

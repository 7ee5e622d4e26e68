//! `sshjobs store check`, `repair`, `backup` and `restore`: damage is found, records are made again, and a copy is whole.

use std::path::{Path, PathBuf};
use std::process::Child;

use crate::support::command::{command, sshjobs, told};
use crate::support::{HOST, Sshd, eventually};
use serde_json::Value;

/// A process that ends with the test, however that ends.
struct Follower(Child);

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Runs jobs whose output is stored, and returns their ids.
fn jobs_of(sshd: &Sshd, commands: &[&str]) -> Vec<String> {
    let run = |command: &&str| {
        let ran = sshjobs(sshd, &["run", "-n", "--json", HOST, "--", command]);
        // After the command's own output.
        let summary = ran.stdout.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty());
        let summary: Value = serde_json::from_slice(summary.unwrap_or_default())
            .unwrap_or_else(|error| panic!("{error}: {ran:?}"));
        summary["job_id"].as_str().unwrap().to_owned()
    };
    commands.iter().map(run).collect()
}

fn state(sshd: &Sshd) -> PathBuf {
    sshd.path("state/sshjobs")
}

fn log_of(sshd: &Sshd, job: &str) -> String {
    told(&sshjobs(sshd, &["log", job]))
}

/// What `store VERB --json` prints, and its exit status.
fn store(sshd: &Sshd, verb: &str) -> (Value, Option<i32>) {
    let output = sshjobs(sshd, &["store", verb, "--json"]);
    let report = serde_json::from_slice(&output.stdout);
    (
        report.unwrap_or_else(|error| panic!("{error}: {output:?}")),
        output.status.code(),
    )
}

/// The only file of a job's output.
fn output_file(sshd: &Sshd, job: &str) -> PathBuf {
    let folder = state(sshd).join("output").join(job.split_at(job.len() - 2).1);
    folder.join(format!("{job}.000001.log"))
}

#[tokio::test]
async fn a_damaged_database_is_made_again_from_the_output() {
    let sshd = Sshd::start().await;
    let jobs = jobs_of(&sshd, &["echo one; exit 3", "seq 1000", "true"]);
    let (whole, status) = store(&sshd, "check");
    assert_eq!((&whole["jobs"], status), (&3.into(), Some(0)), "{whole}");

    for ending in ["-wal", "-shm"] {
        std::fs::remove_file(state(&sshd).join(format!("jobs.db{ending}"))).ok();
    }
    std::fs::write(
        state(&sshd).join("jobs.db"),
        "this is no database at all, not any more",
    )
    .unwrap();

    let (damaged, status) = store(&sshd, "check");
    assert_eq!(status, Some(1), "{damaged}");
    assert!(damaged["database"].is_string(), "{damaged}");
    assert_eq!(damaged["without_record"].as_array().unwrap().len(), 3);
    let refused = sshjobs(&sshd, &["log", &jobs[0]]);
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(words.contains("store repair"), "{words}");

    let (repaired, status) = store(&sshd, "repair");
    assert_eq!(status, Some(0), "{repaired}");
    assert_eq!(
        repaired["rebuilt"].as_array().unwrap().len(),
        3,
        "{repaired}"
    );
    assert!(Path::new(repaired["set_aside"].as_str().unwrap()).exists());

    assert_eq!(log_of(&sshd, &jobs[0]), "one\n");
    assert_eq!(log_of(&sshd, &jobs[1]).lines().count(), 1000);
    let listed = told(&sshjobs(&sshd, &["jobs", "--json"]));
    let mut listed = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let first = listed.find(|job| job["job_id"] == jobs[0].as_str()).unwrap();
    assert_eq!(first["command"], "echo one; exit 3");
    assert_eq!(
        (&first["state"], &first["exit_status"]),
        (&"exited".into(), &3.into())
    );
    assert_eq!(store(&sshd, "check").1, Some(0));
}

#[tokio::test]
async fn jobs_of_an_empty_database_are_found_again_also_without_copies_of_their_records() {
    let sshd = Sshd::start().await;
    let jobs = jobs_of(&sshd, &["echo one", "echo two"]);
    for ending in ["", "-wal", "-shm"] {
        std::fs::remove_file(state(&sshd).join(format!("jobs.db{ending}"))).ok();
    }
    std::fs::write(state(&sshd).join("jobs.db"), "").unwrap();
    let copy = output_file(&sshd, &jobs[1]).with_file_name(format!("{}.record", jobs[1]));
    std::fs::remove_file(copy).unwrap();

    let warned = sshjobs(&sshd, &["jobs"]);
    let words = String::from_utf8_lossy(&warned.stderr).into_owned();
    assert!(words.contains("store repair"), "{words}");
    let (repaired, _) = store(&sshd, "repair");

    assert_eq!(
        repaired["rebuilt"],
        Value::from(vec![jobs[0].clone()]),
        "{repaired}"
    );
    assert_eq!(
        repaired["without_command"],
        Value::from(vec![jobs[1].clone()])
    );
    assert_eq!(
        (log_of(&sshd, &jobs[0]), log_of(&sshd, &jobs[1])),
        ("one\n".into(), "two\n".into())
    );
}

#[tokio::test]
async fn damaged_output_is_named_with_its_bytes() {
    let sshd = Sshd::start().await;
    let jobs = jobs_of(&sshd, &["seq 100000", "echo whole"]);
    let file = output_file(&sshd, &jobs[0]);
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(&file, bytes).unwrap();

    let (check, status) = store(&sshd, "check");

    assert_eq!(status, Some(1));
    let damaged = check["damaged_output"].as_array().unwrap();
    assert_eq!(damaged.len(), 1, "{check}");
    assert_eq!(damaged[0]["job_id"], jobs[0].as_str());
    assert!(damaged[0]["bytes"].as_u64().unwrap() > 0);
    // The records are whole.
    assert_eq!(
        store(&sshd, "repair").0,
        serde_json::json!({"salvaged": 0, "rebuilt": [], "without_command": []})
    );
}

#[tokio::test]
async fn output_that_was_deleted_for_a_limit_is_not_damaged() {
    let sshd = Sshd::start().await;
    let limits = "[limits]\nstored_bytes_per_job = 4194304\n";
    let file = sshd.path("small.toml");
    std::fs::write(&file, limits).unwrap();
    let config = file.to_str().unwrap();
    let ran = sshjobs(
        &sshd,
        &[
            "--config",
            config,
            "run",
            "-n",
            "-q",
            HOST,
            "--",
            "seq 900000",
        ],
    );
    assert!(ran.status.success(), "{:?}", ran.status);

    let (report, status) = store(&sshd, "check");

    assert_eq!(status, Some(0), "{report}");
    let folders = std::fs::read_dir(state(&sshd).join("output")).unwrap().flatten();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.path()).unwrap().flatten());
    let names: Vec<_> = files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
    let has = |ending| names.iter().any(|name| name.ends_with(ending));
    assert!(has(".000005.log") && !has(".000001.log"), "{names:?}");
}

#[tokio::test]
async fn output_that_is_gone_or_cut_is_found() {
    let sshd = Sshd::start().await;
    let jobs = jobs_of(&sshd, &["seq 1000", "seq 2000", "true", "seq 3000"]);
    std::fs::remove_file(output_file(&sshd, &jobs[0])).unwrap();
    std::fs::File::options()
        .write(true)
        .open(output_file(&sshd, &jobs[1]))
        .unwrap()
        .set_len(0)
        .unwrap();
    // Files of others are of no interest.
    let folder = output_file(&sshd, &jobs[3]).parent().unwrap().to_owned();
    std::fs::write(folder.join("copy of X.000001.log"), "x").unwrap();

    let (check, status) = store(&sshd, "check");

    assert_eq!(status, Some(1), "{check}");
    let damaged = check["damaged_output"].as_array().unwrap();
    let mut named: Vec<_> =
        damaged.iter().map(|output| output["job_id"].as_str().unwrap()).collect();
    named.sort_unstable();
    let mut expected = [jobs[0].as_str(), jobs[1].as_str()];
    expected.sort_unstable();
    assert_eq!(named, expected, "{check}");
}

#[tokio::test]
async fn a_job_that_waited_does_not_run_because_its_record_was_made_again() {
    let sshd = Sshd::start().await;
    let ran = sshd.path("ran");
    let first = told(&sshjobs(
        &sshd,
        &["spawn", "--queue", "q", HOST, "--", "sleep 30"],
    ));
    let second = format!("date >>{}", ran.display());
    let mut waiting =
        command(&sshd, &["spawn", "--queue", "q", HOST, "--", &second]).spawn().unwrap();
    let listed = || told(&sshjobs(&sshd, &["jobs", "--json"]));
    eventually("the second job waits", async || {
        listed().contains("\"queued\"")
    })
    .await;
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    let id = listed().lines().find(|line| line.contains("\"queued\"")).map(|line| {
        serde_json::from_str::<Value>(line).unwrap()["job_id"]
            .as_str()
            .unwrap()
            .to_owned()
    });
    let id = id.unwrap();
    sshjobs(&sshd, &["signal", &id]);
    for ending in ["", "-wal", "-shm"] {
        std::fs::remove_file(state(&sshd).join(format!("jobs.db{ending}"))).ok();
    }
    store(&sshd, "repair");

    sshjobs(&sshd, &["signal", "KILL", first.trim()]);
    let lost: Value =
        serde_json::from_str(listed().lines().find(|line| line.contains(&id)).unwrap()).unwrap();
    assert_eq!(lost["state"], "refused", "{lost}");
    assert!(!ran.exists());
}

#[tokio::test]
async fn a_state_directory_in_use_is_not_repaired() {
    let sshd = Sshd::start().await;
    let running =
        Follower(command(&sshd, &["run", "-n", HOST, "--", "sleep 1000"]).spawn().unwrap());
    eventually("the process uses the state directory", async || {
        let used = state(&sshd).join("owners").read_dir();
        used.is_ok_and(|entries| entries.count() > 0)
    })
    .await;
    let refused = sshjobs(&sshd, &["store", "repair"]);
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("is in use by process"),
        "{refused:?}"
    );
    assert_eq!(store(&sshd, "check").1, Some(0));
    drop(running);
}

#[tokio::test]
async fn a_copy_that_is_made_while_jobs_run_restores_them_elsewhere() {
    let sshd = Sshd::start().await;
    let ended = jobs_of(&sshd, &["seq 5000", "echo failed >&2; exit 7"]);
    let spawned = told(&sshjobs(
        &sshd,
        &[
            "spawn",
            HOST,
            "--",
            "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo $i; sleep 0.002; done",
        ],
    ));
    let durable = spawned.trim();
    let follower = Follower(
        command(&sshd, &["tail", "-f", durable])
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap(),
    );
    let archive = sshd.path("copy.tar");
    let archive_word = archive.display().to_string();
    let copied = sshjobs(&sshd, &["store", "backup", &archive_word]);
    assert!(copied.status.success(), "{copied:?}");
    assert_eq!(
        sshjobs(&sshd, &["store", "backup", &archive_word]).status.code(),
        Some(2)
    );
    drop(follower);

    let other = sshd.path("restored").display().to_string();
    let there =
        |arguments: &[&str]| sshjobs(&sshd, &[&["--state-dir", &other], arguments].concat());
    let restored = there(&["store", "restore", &archive_word]);
    assert!(restored.status.success(), "{restored:?}");
    assert_eq!(
        there(&["store", "restore", &archive_word]).status.code(),
        Some(2)
    );

    assert_eq!(told(&there(&["log", &ended[0]])), log_of(&sshd, &ended[0]));
    assert_eq!(there(&["wait", &ended[1]]).status.code(), Some(7));
    // The host still has what the copy lacks.
    assert_eq!(there(&["wait", durable]).status.code(), Some(0));
    let numbers: String = (1..=3000).map(|number| format!("{number}\n")).collect();
    assert_eq!(told(&there(&["log", durable])), numbers);
    assert_eq!(there(&["store", "check"]).status.code(), Some(0));
}

#[tokio::test]
async fn a_file_that_is_no_copy_restores_nothing() {
    let sshd = Sshd::start().await;
    let other = sshd.path("restored");
    let other_word = other.display().to_string();
    let source = sshd.path("source");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("jobs.db"), "").unwrap();
    let archive = sshd.path("archive.tar");
    // The last is a copy that was cut: the file at its end is missing.
    for members in [
        &["--transform=s,^,../,"] as &[&str],
        &["--transform=s,jobs.db,x,"],
        &[],
    ] {
        let made = std::process::Command::new("tar")
            .args(["-P", "-cf"])
            .arg(&archive)
            .arg("-C")
            .arg(&source)
            .args(members)
            .arg("jobs.db")
            .status();
        assert!(made.unwrap().success());
        let refused = sshjobs(
            &sshd,
            &[
                "--state-dir",
                &other_word,
                "store",
                "restore",
                &archive.display().to_string(),
            ],
        );
        assert!(!refused.status.success(), "{refused:?}");
        assert!(!other.exists() || other.read_dir().unwrap().next().is_none());
        assert!(!sshd.path("jobs.db").exists());
    }
}

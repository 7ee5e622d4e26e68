//! Files that a job gives back: `--fetch`, the verb fetch, and a server that copies them by itself.

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::support::command::{command, sshjobs, told};
use crate::support::server::Server;
use crate::support::{HOST, McpClient, Sshd, eventually};

/// A directory of the host in which commands leave files, and one of this machine.
struct Places {
    sshd: Sshd,
    far: PathBuf,
    here: PathBuf,
}

impl Places {
    async fn start() -> Self {
        let sshd = Sshd::start().await;
        let (far, here) = (sshd.path("far"), sshd.path("here"));
        fs::create_dir(&far).unwrap();
        fs::create_dir(&here).unwrap();
        Self { sshd, far, here }
    }

    /// The words of a command that gives files back.
    fn words<'a>(&'a self, verb: &'a str, patterns: &[&'a str], script: &'a str) -> Vec<&'a str> {
        let mut words = vec![verb, "--cwd", self.far.to_str().unwrap()];
        words.extend(patterns.iter().flat_map(|pattern| ["--fetch", pattern]));
        words.extend([HOST, "--", script]);
        words
    }

    /// Runs the program in the directory of this machine.
    fn here(&self, words: &[&str]) -> Output {
        let mut command = command(&self.sshd, words);
        command.current_dir(&self.here).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.output().unwrap()
    }

    fn spawn(&self, patterns: &[&str], script: &str) -> String {
        told(&sshjobs(&self.sshd, &self.words("spawn", patterns, script)))
            .trim()
            .to_owned()
    }
}

/// Paths of all files below a directory, in order.
fn files_below(directory: &Path) -> Vec<String> {
    let mut files = Vec::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(path) = waiting.pop() {
        for entry in fs::read_dir(path).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                waiting.push(entry.path());
            } else {
                let below = entry.path().strip_prefix(directory).unwrap().display().to_string();
                files.push(below);
            }
        }
    }
    files.sort_unstable();
    files
}

fn paths(fetched: &Value) -> Vec<&str> {
    let files = fetched.as_array().unwrap_or_else(|| panic!("no list of files: {fetched}"));
    files.iter().map(|file| file["path"].as_str().unwrap()).collect()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_command_come_back_below_the_current_directory() {
    let places = Places::start().await;
    let script = "mkdir -p runs/1/.hidden logs/a/b; echo one >runs/1/model; echo two >runs/1/.hidden/state; \
                  echo x >a.csv; echo y >.b.csv; echo z >logs/a/b/c.log; echo no >other; exit 3";
    let mut words = places.words("run", &["runs/**", "*.csv", "logs/**/*.log"], script);
    words.insert(1, "--json");
    let ended = places.here(&words);
    assert_eq!(ended.status.code(), Some(3), "{ended:?}");
    let expected = [
        "a.csv",
        "logs/a/b/c.log",
        "runs/1/.hidden/state",
        "runs/1/model",
    ];
    assert_eq!(files_below(&places.here), expected);
    let model = fs::read_to_string(places.here.join("runs/1/model")).unwrap();
    assert_eq!(model, "one\n");
    let summary: Value = serde_json::from_str(told_anyway(&ended).lines().last().unwrap()).unwrap();
    assert_eq!(paths(&summary["fetched"]), expected);
    assert_eq!(summary["fetched"][0]["bytes"], 2);
    assert_eq!(summary["exit_status"], 3);
    assert!(said(&ended).contains("fetched 4 files"), "{}", said(&ended));

    // A list has them, too.
    let listed = told(&sshjobs(&places.sshd, &["jobs", "--json"]));
    let entry: Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
    assert_eq!(paths(&entry["fetched"]), expected);
}

fn told_anyway(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn links_lead_out_of_neither_tree() {
    let places = Places::start().await;
    let secret = places.sshd.path("secret");
    fs::write(&secret, "secret\n").unwrap();
    fs::create_dir(places.far.join("runs")).unwrap();
    fs::write(places.far.join("runs/last"), "last\n").unwrap();
    symlink("last", places.far.join("runs/latest")).unwrap();
    symlink(&secret, places.far.join("runs/out")).unwrap();
    symlink("..", places.far.join("runs/up")).unwrap();

    let ended = places.here(&places.words("run", &["runs/**"], "true"));
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert_eq!(files_below(&places.here), ["runs/last", "runs/latest"]);
    let latest = fs::symlink_metadata(places.here.join("runs/latest")).unwrap();
    assert!(latest.is_file());
    let said = said(&ended);
    assert!(
        said.contains("runs/out: a link that leads out, or to nothing"),
        "{said}"
    );
    // The files of a directory are found by their own names.
    assert!(!said.contains("runs/up"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_without_files_is_reported_and_one_that_leads_out_starts_nothing() {
    let places = Places::start().await;
    let ended = places.here(&places.words("run", &["made", "missing/*.bin"], "echo x >made"));
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(said(&ended).contains("no file matches missing/*.bin"));
    // Two patterns may find the same file, and the command's exit code comes first.
    let twice = places.here(&places.words("run", &["made", "m*", "none"], "exit 4"));
    assert_eq!(twice.status.code(), Some(4), "{twice:?}");
    assert!(!said(&twice).contains("no file matches m"), "{twice:?}");
    assert_eq!(files_below(&places.here), ["made"]);

    for pattern in ["/etc/passwd", "../other", "~/x", "", "runs/**.csv", "[a"] {
        let ended = places.here(&places.words("run", &[pattern], "echo x >never"));
        assert_eq!(ended.status.code(), Some(2), "{pattern}: {ended:?}");
    }
    assert!(!places.far.join("never").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_job_in_the_background_are_fetched_when_it_has_ended() {
    let places = Places::start().await;
    let go = places.far.join("go").display().to_string();
    let script = format!("while [ ! -e {go} ]; do sleep 0.1; done; echo done >out.txt");
    let job = places.spawn(&["*.txt"], &script);
    let early = places.here(&["fetch", &job]);
    assert_eq!(early.status.code(), Some(255), "{early:?}");
    assert!(said(&early).contains("still runs"), "{}", said(&early));
    fs::write(&go, "").unwrap();
    told(&sshjobs(&places.sshd, &["wait", &job]));

    assert_eq!(told(&places.here(&["fetch", &job])), "out.txt\n");
    assert_eq!(files_below(&places.here), ["out.txt"]);
    // Again, to another place.
    let again = told(&places.here(&["fetch", "--json", &job, "other"]));
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!(paths(&again["fetched"]), ["out.txt"]);
    assert_eq!(files_below(&places.here), ["other/out.txt", "out.txt"]);

    let plain = told(&sshjobs(&places.sshd, &["spawn", HOST, "--", "true"])).trim().to_owned();
    told(&sshjobs(&places.sshd, &["wait", &plain]));
    let refused = places.here(&["fetch", &plain]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(
        said(&refused).contains("without fetch"),
        "{}",
        said(&refused)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_gives_back_files_of_each_host() {
    let places = Places::start().await;
    places.sshd.alias(["web1", "web2"]);
    let mut words = places.words("run", &["*.out"], "echo x >x.out");
    let host = words.iter().position(|word| *word == HOST).unwrap();
    words[host] = "web1,web2";
    told(&places.here(&words));
    assert_eq!(files_below(&places.here), ["web1/x.out", "web2/x.out"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_copies_files_by_itself_and_hands_them_out() {
    let places = Places::start().await;
    let server = Server::with(&places.sshd, &[]);
    let caller = server.caller(&places.sshd, "ci", &[]);
    let far = places.far.display().to_string();
    let start = json!({"host": HOST, "cwd": far, "fetch": ["out/**"],
                       "command": "mkdir -p out/a; echo text >'out/a/b c.txt'"});
    let ran = caller.ok("run", start.clone());
    assert_eq!(paths(&ran["fetched"]), ["out/a/b c.txt"], "{ran}");
    let id = ran["job_id"].as_str().unwrap().to_owned();

    let mut file = caller.get(&format!("/v1/jobs/{id}/fetched/out/a/b%20c.txt"));
    assert_eq!(file.status(), 200);
    let mut text = String::new();
    file.body_mut().as_reader().read_to_string(&mut text).unwrap();
    assert_eq!(text, "text\n");
    for hostile in ["..%2Flist.json", "%2Fetc%2Fpasswd", "out", "nothing"] {
        let answer = caller.get(&format!("/v1/jobs/{id}/fetched/{hostile}"));
        assert!(answer.status().is_client_error(), "{hostile}: {answer:?}");
    }
    // Another caller does not see the job.
    let reader = server.caller(&places.sshd, "reader", &["--role", "read"]);
    let refused = reader.get(&format!("/v1/jobs/{id}/fetched/out/a/b%20c.txt"));
    assert_eq!(refused.status(), 404, "{refused:?}");
    // Not even one that the list names leads out.
    let kept = PathBuf::from(ran["fetched_to"].as_str().unwrap());
    symlink(places.sshd.path("ssh_config"), kept.join("link")).unwrap();
    let list = kept.parent().unwrap().join("list.json");
    let text = fs::read_to_string(&list).unwrap().replace("out/a/b c.txt", "link");
    let own = fs::read_to_string(&list).unwrap();
    fs::write(&list, text).unwrap();
    let led_out = caller.get(&format!("/v1/jobs/{id}/fetched/link"));
    assert!(!led_out.status().is_success(), "{led_out:?}");
    fs::write(&list, own).unwrap();

    // A person at another machine gets them through the server.
    let token = places.sshd.path("token");
    fs::write(&token, &caller.token).unwrap();
    let options = [
        "--server",
        &caller.url,
        "--token-file",
        token.to_str().unwrap(),
    ];
    let fetched = places.here(&[&options[..], &["fetch", &id]].concat());
    assert_eq!(told(&fetched), "out/a/b c.txt\n");
    assert_eq!(files_below(&places.here), ["out/a/b c.txt"]);
    fs::remove_dir_all(places.here.join("out")).unwrap();
    let words = places.words("run", &["out/**"], "true");
    told(&places.here(&[&options[..], &words].concat()));
    assert_eq!(files_below(&places.here), ["out/a/b c.txt"]);

    // They go with the job.
    assert!(kept.join("out/a/b c.txt").exists());
    caller.ok("forget", json!({"job_id": id}));
    assert!(!kept.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_copied_back_also_after_the_server_was_killed() {
    let places = Places::start().await;
    let first = Server::with(&places.sshd, &[]);
    let caller = first.caller(&places.sshd, "ci", &[]);
    let far = places.far.display().to_string();
    let go = places.far.join("go").display().to_string();
    let command = format!("while [ ! -e {go} ]; do sleep 0.1; done; echo done >out.txt");
    let start = json!({"host": HOST, "cwd": far, "fetch": ["out.txt"], "durable": true, "command": command});
    let id = caller.ok("spawn", start)["job_id"].as_str().unwrap().to_owned();
    let pid = Pid::from_raw(first.pid().cast_signed());
    kill(pid, Signal::SIGKILL).unwrap();
    first.ended().await;
    fs::write(&go, "").unwrap();

    // It ends while no server runs, so the next one finds it ended.
    told(&sshjobs(&places.sshd, &["wait", &id]));
    let second = Server::with(&places.sshd, &[]);
    let caller = second.caller(&places.sshd, "again", &["--role", "admin"]);
    let entry = async || caller.ok("jobs", json!({"job_id": id}))["jobs"][0].clone();
    eventually("the file is there", async || {
        !entry().await["fetched"].is_null()
    })
    .await;
    let entry = entry().await;
    assert_eq!(paths(&entry["fetched"]), ["out.txt"]);
    let kept = PathBuf::from(entry["fetched_to"].as_str().unwrap());
    assert_eq!(fs::read_to_string(kept.join("out.txt")).unwrap(), "done\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_learns_where_the_files_of_its_command_are() {
    let places = Places::start().await;
    let mut agent = McpClient::start(&places.sshd.ssh_config());
    let far = places.far.display().to_string();
    let reply = agent.ok(
        "ssh_run",
        json!({"host": HOST, "cwd": far, "fetch": ["out.txt"], "command": "echo done >out.txt"}),
    );
    assert_eq!(paths(&reply["fetched"]), ["out.txt"], "{reply}");
    let kept = PathBuf::from(reply["fetched_to"].as_str().unwrap());
    assert_eq!(fs::read_to_string(kept.join("out.txt")).unwrap(), "done\n");
    let outside = json!({"host": HOST, "fetch": ["/etc/passwd"], "command": "true"});
    assert_eq!(agent.code("ssh_run", outside), "invalid_argument");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_never_began_gives_no_files() {
    let places = Places::start().await;
    fs::write(places.far.join("old.txt"), "of another job\n").unwrap();
    let failed = told(&sshjobs(&places.sshd, &["spawn", HOST, "--", "false"])).trim().to_owned();
    sshjobs(&places.sshd, &["wait", &failed]);
    let mut words = places.words("run", &["*.txt"], "true");
    words.splice(1..1, ["--after-ok", &failed]);
    let ended = places.here(&words);
    assert!(!ended.status.success(), "{ended:?}");
    assert!(files_below(&places.here).is_empty(), "{ended:?}");
    assert!(
        said(&ended).contains("no files to fetch") || !said(&ended).contains("fetched"),
        "{ended:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_sync_has_sent_does_not_come_back() {
    let places = Places::start().await;
    fs::write(places.here.join("train.sh"), "echo first\n").unwrap();
    let go = places.far.join("go").display().to_string();
    let far = places.far.join("tree").display().to_string();
    let tree = format!(".:{far}");
    let script = format!("echo made >out; while [ ! -e {go} ]; do sleep 0.1; done");
    let words = [
        "run", "-n", "--sync", &tree, "--fetch", "**", HOST, "--", &script,
    ];
    let mut running = command(&places.sshd, &words).current_dir(&places.here).spawn().unwrap();
    let out = places.far.join("tree/out");
    eventually("it runs", async || out.exists()).await;
    fs::write(places.here.join("train.sh"), "echo edited meanwhile\n").unwrap();
    fs::write(&go, "").unwrap();
    assert!(running.wait().unwrap().success());
    let edited = fs::read_to_string(places.here.join("train.sh")).unwrap();
    assert_eq!(edited, "echo edited meanwhile\n");
    assert_eq!(files_below(&places.here), ["out", "train.sh"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_is_not_changed_while_its_files_are_to_be_fetched() {
    let places = Places::start().await;
    let project = places.here.join("project");
    fs::create_dir(&project).unwrap();
    fs::write(project.join("version"), "1\n").unwrap();
    let tree = project.display().to_string();
    let words = [
        "spawn",
        "--sync",
        &tree,
        "--fetch",
        "out",
        HOST,
        "--",
        "cat version >out",
    ];
    let job = told(&sshjobs(&places.sshd, &words)).trim().to_owned();
    told(&sshjobs(&places.sshd, &["wait", &job]));
    fs::write(project.join("version"), "2\n").unwrap();
    told(&sshjobs(
        &places.sshd,
        &["run", "-n", "--sync", &tree, HOST, "--", "cat version >out"],
    ));
    let fetched = told(&places.here(&["fetch", &job, "back"]));
    assert_eq!(fetched, "out\n");
    assert_eq!(
        fs::read_to_string(places.here.join("back/out")).unwrap(),
        "1\n"
    );
    let listed = told(&sshjobs(&places.sshd, &["jobs", "--json"]));
    for line in listed.lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        let below = entry["tree"]["path"].as_str().unwrap().strip_prefix("~/").unwrap();
        fs::remove_dir_all(std::env::home_dir().unwrap().join(below)).ok();
    }
}

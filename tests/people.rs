//! What people do at a terminal, with jobs that they have started: list, leave, interrupt, trust.

use serde_json::{Value, json};

use crate::support::command::{sshjobs, told};
use crate::support::server::{Server, token};
use crate::support::tmux::Tmux;
use crate::support::{HOST, Sshd, eventually};

const SIZE: (u16, u16) = (100, 30);

/// `sshjobs ARGUMENTS` as a command of a shell.
fn command_line(sshd: &Sshd, arguments: &str) -> String {
    format!(
        "XDG_CONFIG_HOME={} XDG_STATE_HOME={} {} --ssh-config {} {arguments}",
        sshd.path("no-config").display(),
        sshd.path("state").display(),
        env!("CARGO_BIN_EXE_sshjobs"),
        sshd.ssh_config().display(),
    )
}

fn spawn(sshd: &Sshd, words: &[&str]) -> String {
    told(&sshjobs(sshd, &[&["spawn"], words].concat())).trim().to_owned()
}

fn newest_entry(sshd: &Sshd) -> Value {
    let listed = told(&sshjobs(sshd, &["jobs", "--json"]));
    serde_json::from_str(listed.lines().next().unwrap()).unwrap()
}

/// A cell of a table, whose columns are two spaces apart.
fn cell(line: &str, number: usize) -> &str {
    line.split("  ")
        .filter(|cell| !cell.is_empty())
        .nth(number)
        .unwrap_or_default()
        .trim()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_jobs_begins_with_what_needs_a_person_and_counts_the_others() {
    let sshd = Sshd::start().await;
    let ok = spawn(&sshd, &[HOST, "--", "echo fine"]);
    let failed = spawn(&sshd, &["--label", "nightly", HOST, "--", "exit 3"]);
    let running = spawn(&sshd, &[HOST, "--", "sleep 600"]);
    let asking = spawn(&sshd, &["--stdin", HOST, "--", "printf 'name? '; read n"]);
    for job in [&ok, &failed] {
        sshjobs(&sshd, &["wait", job]);
    }
    let list = |words: &[&str]| told(&sshjobs(&sshd, &[&["jobs"], words].concat()));
    // Another process follows the jobs, so that it can see the question.
    let top = Tmux::start(&command_line(&sshd, "top"), SIZE);
    top.shows(&["waits", "running", "exit 3", "exit 0"]).await;

    // The examination of jobs for questions has a time limit.
    eventually("the question is seen", async || {
        list(&[]).contains("waits  ")
    })
    .await;
    let listed = list(&[]);
    let lines: Vec<&str> = listed.lines().collect();
    let rows: Vec<_> = lines[1..5].iter().map(|line| cell(line, 2)).collect();
    assert_eq!(rows, ["waits", "running", "exit 3", "exit 0"], "{listed}");
    assert!(
        lines[1].starts_with(&asking) && lines[2].starts_with(&running),
        "{listed}"
    );
    assert_eq!(
        lines[5], "1 waiting for input, 1 running, 1 failed, 4 in all",
        "{listed}"
    );
    let shown = |words: &[&str]| {
        let listed = list(words);
        [&ok, &failed, &running, &asking].map(|id| listed.contains(id.as_str()))
    };
    assert_eq!(shown(&["--failed"]), [false, true, false, false]);
    assert_eq!(shown(&["--waiting"]), [false, false, false, true]);
    assert_eq!(shown(&["--grep", "NIGHT"]), [false, true, false, false]);
    assert_eq!(shown(&["--grep", "sleep 6", "--failed"]), [false; 4]);
    assert!(
        lines[0].contains("WHO"),
        "top records two of them: {listed}"
    );
    top.press(&["q"]);
    top.shows(&["ended with 0"]).await;
    let of_one = list(&["--failed"]);
    assert!(!of_one.contains("WHO"), "{of_one}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_narrow_terminal_keeps_room_for_the_command() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let other = server.caller(&sshd, "another-caller", &[]);
    other.ok("spawn", json!({"host": HOST, "command": "true"}));
    let text = "printf 'a command of forty characters, no less'";
    let job = spawn(&sshd, &[HOST, "--", text]);
    sshjobs(&sshd, &["wait", &job]);

    let wide = Tmux::start(&command_line(&sshd, "jobs"), (140, 20));
    wide.shows(&["WHO", "another-caller", "LINES", text]).await;
    let narrow = Tmux::start(&command_line(&sshd, "jobs"), (70, 20));
    narrow.shows(&[&job, "printf 'a command of forty", "ended with 0"]).await;
    assert!(!narrow.screen().contains("WHO"), "{}", narrow.screen());
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_were_not_started_say_why() {
    let sshd = Sshd::start().await;
    sshd.alias(["db1", "db2"]);
    let fleet = ["run", "web1,db1,db2", "--canary", "1", "--", "false"];
    let run = sshjobs(&sshd, &fleet);
    let summary = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(
        summary.contains("not started: the canary web1 failed"),
        "{summary}"
    );
    let id = newest_entry(&sshd)["job_id"].as_str().unwrap().to_owned();

    let listed = told(&sshjobs(&sshd, &["jobs", "--fleet", &id]));

    assert_eq!(
        listed.matches("(the canary web1 failed)").count(),
        2,
        "{listed}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn run_with_d_starts_a_job_and_a_label_finds_it() {
    let sshd = Sshd::start().await;
    let run = sshjobs(
        &sshd,
        &["run", "-d", "--label", "nightly", HOST, "--", "sleep 600"],
    );

    let id = told(&run).trim().to_owned();
    let note = String::from_utf8_lossy(&run.stderr).into_owned();

    assert!(note.contains("as `sshjobs spawn` does"), "{note}");
    let entry = newest_entry(&sshd);
    assert_eq!(
        (&entry["job_id"], &entry["label"]),
        (&json!(id), &json!("nightly"))
    );
    assert_eq!(entry["durable"], true, "{entry}");
    sshjobs(&sshd, &["run", "--label", "now", HOST, "--", "true"]);
    assert_eq!(newest_entry(&sshd)["label"], "now");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_ignores_an_interrupt_is_killed_by_the_next() {
    let sshd = Sshd::start().await;
    let run = "run web1 -- 'trap \"\" INT; echo ready; sleep 600; sleep 600'";
    let tmux = Tmux::start(&command_line(&sshd, run), SIZE);
    tmux.shows(&["ready"]).await;

    tmux.press(&["C-c"]);
    tmux.shows(&["interrupting; press Ctrl-C again to kill the command"]).await;
    tmux.press(&["C-c"]);

    tmux.shows(&["\nended with 137"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_command_is_left_if_it_can_go_on() {
    let sshd = Sshd::start().await;
    for tty in ["", "-t "] {
        let run = format!("run --durable {tty}web1 -- 'echo ready; sleep 600'");
        let tmux = Tmux::start(&command_line(&sshd, &run), SIZE);
        tmux.shows(&["ready"]).await;
        tmux.text("~&");
        tmux.press(&["Enter"]);
        tmux.shows(&["detached; `sshjobs", "ended with 0"]).await;
        assert_eq!(newest_entry(&sshd)["state"], "running");
        sshjobs(&sshd, &["kill", "last"]);
    }
    let tmux = Tmux::start(&command_line(&sshd, "run web1 -- 'echo ready; cat'"), SIZE);
    tmux.shows(&["ready"]).await;

    tmux.text("~&");
    tmux.press(&["Enter"]);

    tmux.shows(&["can't be left running", "--durable"]).await;
    tmux.text("still here");
    tmux.press(&["Enter"]);
    tmux.shows(&["still here\nstill here"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_of_a_server_is_left_there_without_being_durable() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    std::fs::write(
        sshd.path("token"),
        token(&sshd, "person", &["--role", "run"]),
    )
    .unwrap();
    for tty in ["", "-t "] {
        let run = format!(
            "--server {} --token-file {} run {tty}web1 -- 'echo ready; sleep 600'",
            server.url,
            sshd.path("token").display()
        );
        let tmux = Tmux::start(&command_line(&sshd, &run), SIZE);
        tmux.shows(&["ready"]).await;
        tmux.press(&["Enter"]);
        tmux.text("~&");
        tmux.press(&["Enter"]);
        tmux.shows(&["detached; `sshjobs", "ended with 0"]).await;
        // A command that ends with its client is gone within two seconds.
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        let entry = newest_entry(&sshd);
        assert_eq!(
            (&entry["state"], &entry["durable"]),
            (&json!("running"), &Value::Null)
        );
        sshjobs(&sshd, &["kill", entry["job_id"].as_str().unwrap()]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_several_hosts_are_accepted_by_one_answer() {
    let sshd = Sshd::start().await;
    sshd.alias(["db1", "db2"]);
    sshd.write_known_hosts("");
    let trust = |hosts: &str| Tmux::start(&command_line(&sshd, &format!("trust {hosts}")), SIZE);

    let tmux = trust("'db*' web1");
    tmux.shows(&[
        "db1 at",
        "db2 at",
        "web1 at",
        "Are these 3 the hosts' own fingerprints?",
    ])
    .await;
    tmux.text("y");
    tmux.press(&["Enter"]);
    tmux.shows(&["Please type yes, or no:"]).await;
    tmux.text("yes");
    tmux.press(&["Enter"]);
    tmux.shows(&["Written to", "ended with 0"]).await;

    assert_eq!(
        told(&sshjobs(&sshd, &["run", "db1", "--", "echo in"])),
        "in\n"
    );
    let again = sshjobs(&sshd, &["trust", "db1", "db2"]);
    assert_eq!(told(&again).matches("known already").count(), 2);
    let mixed = sshjobs(
        &sshd,
        &[
            "trust",
            "db1",
            "db2",
            "--fingerprint",
            &format!("SHA256:{}", "A".repeat(43)),
        ],
    );
    assert_eq!(mixed.status.code(), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_holds_releases_and_moves_queued_jobs() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let caller = server.caller(&sshd, "ci", &["--role", "admin"]);
    let gate = sshd.path("gate").display().to_string();
    let order = sshd.path("order").display().to_string();
    let queued = |name: &str| {
        let command = format!("until [ -e {gate} ]; do sleep 0.1; done; echo {name} >> {order}");
        let request = json!({"host": HOST, "command": command, "queue": "deploy"});
        caller.ok("spawn", request)["job_id"].as_str().unwrap().to_owned()
    };
    let [first, second, _, fourth] = ["first", "second", "third", "fourth"].map(queued);
    let queue = |words: &[&str]| sshjobs(&sshd, &[&["queue"], words].concat());
    let listed = told(&queue(&[]));
    assert!(
        listed.contains("deploy: 1 at a time") && listed.contains("#3"),
        "{listed}"
    );

    // The beginning of an id is enough, as everywhere.
    told(&queue(&["hold", second.get(..second.len() - 1).unwrap()]));
    told(&queue(&["move", &fourth, "first"]));
    let running = queue(&["move", &first, "last"]);
    assert_eq!(running.status.code(), Some(2));
    let jobs = told(&sshjobs(&sshd, &["jobs"]));
    assert!(jobs.contains("queued #1"), "{jobs}");
    std::fs::write(&gate, "").unwrap();
    let done = || std::fs::read_to_string(&order).unwrap_or_default();
    eventually("the jobs that are not held have run", async || {
        done().lines().count() == 3
    })
    .await;
    assert_eq!(done(), "first\nfourth\nthird\n");
    told(&queue(&["release", &second]));
    eventually("the released job has run", async || {
        done().ends_with("second\n")
    })
    .await;

    told(&queue(&["hold", "deploy"]));
    let held = queued("held");
    let limited = server.caller(&sshd, "limited", &["--role", "run"]);
    assert_eq!(
        limited.call("queue", json!({"action": "release", "name": "deploy"})).0,
        403
    );
    let unseen = limited.call("queue", json!({"action": "release", "job_id": held})).1;
    assert_eq!(unseen["code"], "unknown_job", "{unseen}");
    assert_eq!(limited.ok("queue", json!({}))["queues"][0]["others"], 1);
    let listed = told(&queue(&["deploy"]));
    assert!(listed.contains("held: nothing starts"), "{listed}");
    told(&queue(&["release", "deploy"]));
    eventually("the queue continues", async || done().ends_with("held\n")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_started_again_with_its_surroundings() {
    let sshd = Sshd::start().await;
    let words = [
        "--cwd",
        "/tmp",
        "--label",
        "nightly",
        "--env",
        "COLOUR=blue",
        "--timeout",
        "60",
        HOST,
        "--",
        "echo \"$COLOUR in $(pwd)\"; exit 3",
    ];
    let first = spawn(&sshd, &words);
    sshjobs(&sshd, &["wait", &first]);

    let without = sshjobs(&sshd, &["rerun", &first]);
    let message = String::from_utf8_lossy(&without.stderr).into_owned();
    assert!(
        message.contains("COLOUR") && message.contains("--env COLOUR=VALUE"),
        "{message}"
    );
    let again = sshjobs(&sshd, &["rerun", "last", "--env", "COLOUR=red"]);
    assert_eq!(String::from_utf8_lossy(&again.stdout), "red in /tmp\n");
    assert_eq!(again.status.code(), Some(3));
    let entry = newest_entry(&sshd);
    assert_eq!(
        (&entry["label"], &entry["durable"]),
        (&json!("nightly"), &json!(true))
    );
    let id = told(&sshjobs(
        &sshd,
        &["rerun", "-d", "--env", "COLOUR=green", &first],
    ));
    assert_eq!(sshjobs(&sshd, &["wait", id.trim()]).status.code(), Some(3));
    assert_eq!(
        told(&sshjobs(&sshd, &["log", id.trim()])),
        "green in /tmp\n"
    );

    let asked = Tmux::start(&command_line(&sshd, &format!("rerun {first}")), SIZE);
    asked.shows(&["value of the variable COLOUR:"]).await;
    asked.text("hidden");
    asked.press(&["Enter"]);
    asked.shows(&["hidden in /tmp", "ended with 3"]).await;

    let argv = ["run", "--argv", HOST, "--", "printf", "%s|", "a b", "c"];
    sshjobs(&sshd, &argv);
    assert_eq!(told(&sshjobs(&sshd, &["rerun", "last"])), "a b|c|");
    sshd.alias(["db1"]);
    sshjobs(&sshd, &["run", "web1,db1", "--", "echo here"]);
    let fleet = told(&sshjobs(&sshd, &["rerun", "last"]));
    assert!(
        fleet.contains("web1 | here") && fleet.contains("db1  | here"),
        "{fleet}"
    );
    std::fs::write(sshd.path("script"), "#!/bin/sh\necho $1\n").unwrap();
    let script = sshd.path("script").display().to_string();
    sshjobs(&sshd, &["run", "--script", &script, HOST, "--", "x"]);
    let refused = sshjobs(&sshd, &["rerun", "last"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("text is not stored"));
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_and_end_of_a_job_that_nobody_followed_are_those_of_its_host() {
    let sshd = Sshd::start().await;
    // 25 lines, the last of which is unfinished.
    let job = spawn(&sshd, &[HOST, "--", "seq 24 >&2; printf end"]);
    let running = spawn(&sshd, &[HOST, "--", "seq 7; sleep 600"]);
    let list = || told(&sshjobs(&sshd, &["jobs", "--json"]));
    let entry = |id: &str| -> Value {
        let entries = list();
        let mut entries = entries.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        entries.find(|entry| entry["job_id"] == id).unwrap()
    };
    eventually(
        "the list has the end of one job and the lines of both",
        async || {
            entry(&job)["exit_status"] == 0
                && entry(&job)["total_lines"] == 25
                && entry(&running)["total_lines"] == 7
        },
    )
    .await;
    let ended = entry(&job)["ended_at"].clone();
    assert!(
        ended.as_u64() >= entry(&job)["started_at"].as_u64(),
        "{ended}"
    );
    // Longer than the end of a followed job takes to be noticed.
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    assert_eq!(
        entry(&job)["ended_at"],
        ended,
        "the time of the end, and not of the list"
    );
    told(&sshjobs(&sshd, &["log", &job]));
    assert_eq!(entry(&job)["total_lines"], 25, "the same once it was read");
    assert_eq!(entry(&job)["ended_at"], ended, "the same once it was read");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_comes_after_the_last_one_and_says_if_that_has_failed() {
    let sshd = Sshd::start().await;
    let failed = spawn(&sshd, &[HOST, "--", "exit 3"]);
    sshjobs(&sshd, &["wait", &failed]);

    let refused = sshjobs(&sshd, &["spawn", "--after-ok", "last", HOST, "--", "true"]);

    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{told}");
    assert!(told.contains(&failed), "{told}");
    for (arguments, part) in [
        (&["jobs", "--host", "web*"][..], "not the name of one host"),
        (&["spawn", "--label", "", HOST, "--", "true"], "label"),
    ] {
        let wrong = sshjobs(&sshd, arguments);
        assert_eq!(wrong.status.code(), Some(2), "{arguments:?}");
        assert!(
            String::from_utf8_lossy(&wrong.stderr).contains(part),
            "{wrong:?}"
        );
    }
    let pinged = sshjobs(&sshd, &["ping", HOST, HOST]);
    assert!(pinged.status.success(), "{pinged:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_to_a_fleet_that_nobody_follows_leaves_the_ends_as_they_were() {
    let sshd = Sshd::start().await;
    sshd.alias(["db1"]);
    let fleet = spawn(&sshd, &["web1,db1", "--", "exit 3"]);
    let members = || -> Vec<Value> {
        let listed = told(&sshjobs(&sshd, &["jobs", "--fleet", &fleet, "--json"]));
        listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    // Its members have ended on their hosts, and no process has noticed.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;

    sshjobs(&sshd, &["signal", &fleet, "TERM"]);

    eventually("both members have exited", async || {
        members().iter().all(|member| member["exit_status"] == 3)
    })
    .await;
    assert_eq!(members().len(), 2);
}

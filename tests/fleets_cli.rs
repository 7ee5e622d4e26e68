//! Options of `run` on many hosts, and what helps at a shell, against a private sshd with several
//! names.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Output, Stdio};
use std::time::Duration;

use crate::support::command::{command, sshjobs, told};
use crate::support::server::Server;
use crate::support::tmux::Tmux;
use crate::support::{Sshd, eventually, ssh_keygen};

async fn hosts() -> Sshd {
    let sshd = Sshd::start().await;
    sshd.alias(["web2", "db1"]);
    sshd
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_can_not_be_had_is_tried_again_and_a_command_that_fails_is_not() {
    let sshd = hosts().await;
    sshd.write_known_hosts("");
    let ran = sshd.path("ran");
    let line = format!("echo x >> {}; exit 3", ran.display());
    let arguments = ["run", "web1,web2", "--retries", "8", "--", &line];
    let mut child = command(&sshd, &arguments).stderr(Stdio::null()).spawn().unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(
        !ran.exists() && child.try_wait().unwrap().is_none(),
        "it tries"
    );
    sshd.trust("host");
    assert_eq!(
        crate::support::exit_of(&mut child).await,
        Some(2),
        "both have failed, in the command"
    );
    assert_eq!(
        std::fs::read_to_string(&ran).unwrap(),
        "x\nx\n",
        "each has run it once"
    );
    sshd.write_known_hosts("");
    let once = sshjobs(&sshd, &["run", "web1,web2", "--", "true"]);
    assert!(
        stderr(&once).contains("2 could not be started"),
        "{}",
        stderr(&once)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_joblog_is_resumed_where_it_ends() {
    let sshd = hosts().await;
    let (log, ran) = (sshd.path("joblog").display().to_string(), sshd.path("ran"));
    let line = format!("echo x >> {}; exit 1", ran.display());
    let run = |hosts: &str, resume: &str| {
        let words = ["run", hosts, "--joblog", &log, resume, "--", &line];
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        sshjobs(&sshd, &words).status.code()
    };
    let times = || std::fs::read_to_string(&ran).unwrap().lines().count();
    assert_eq!((run("web1,web2", ""), times()), (Some(2), 2));
    assert_eq!(
        (run("web1,web2,db1", "--resume"), times()),
        (Some(1), 3),
        "only the new one"
    );
    assert_eq!(
        (run("web1,web2,db1", "--resume"), times()),
        (Some(0), 3),
        "nothing is left"
    );
    assert_eq!(
        (run("web1,web2,db1", "--resume-failed"), times()),
        (Some(3), 6),
        "all have failed"
    );
    assert_eq!(
        (run("*", "--resume"), times()),
        (Some(0), 6),
        "a pattern stands for hosts that are done"
    );
    assert_eq!(
        (run("web*,!web2", "--resume-failed"), times()),
        (Some(1), 7)
    );
    assert_eq!(
        (run("web[1-2],db[1]", "--resume"), times()),
        (Some(0), 7),
        "a range stands for its names"
    );
    let junit = sshd.path("junit.xml").display().to_string();
    told(&sshjobs(
        &sshd,
        &[
            "run", "web[1-2]", "--joblog", &log, "--resume", "--junit", &junit, "--", &line,
        ],
    ));
    assert!(
        std::fs::read_to_string(&junit).unwrap().contains("tests=\"0\""),
        "CI finds a report all the same"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_come_from_a_file_and_the_command_line_goes_over_it() {
    let sshd = hosts().await;
    let file = sshd.path("variables");
    std::fs::write(&file, "# a comment\nA=from file\n\nB=from file\nC\n").unwrap();
    let file = file.display().to_string();
    let words = [
        "run",
        "web1,db1",
        "--env-file",
        &file,
        "-e",
        "B=from line",
        "--",
        "echo \"$A, $B, $C\"",
    ];
    let output = command(&sshd, &words)
        .env("C", "passed on")
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    let shown = told(&output);
    let shown: BTreeSet<&str> = shown.lines().collect();
    assert_eq!(
        shown,
        BTreeSet::from([
            "web1 | from file, from line, passed on",
            "db1  | from file, from line, passed on"
        ])
    );
    std::fs::write(&file, "A=1\n2B\n").unwrap();
    let refused = sshjobs(&sshd, &["run", "web1", "--env-file", &file, "--", "true"]);
    assert!(
        stderr(&refused).contains("variables:2"),
        "{}",
        stderr(&refused)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_joblog_and_completions_have_no_control_characters() {
    let sshd = hosts().await;
    let log = sshd.path("joblog");
    let line = "true '\u{1b}]0;title\u{7}\u{8}'";

    told(&sshjobs(
        &sshd,
        &[
            "run",
            "web1,web2",
            "--joblog",
            log.to_str().unwrap(),
            "--",
            line,
        ],
    ));
    let job = told(&sshjobs(
        &sshd,
        &["spawn", "web1", "--label", "la\u{1b}bel", "--", line],
    ));

    let written = std::fs::read_to_string(&log).unwrap();
    let is_plain = |text: &str| !text.contains(['\u{1b}', '\u{7}', '\u{8}']);
    assert!(
        written.contains("true ") && is_plain(&written),
        "{written:?}"
    );
    let state = sshd.path("state/sshjobs").display().to_string();
    let words = || completed(&sshd, &["--state-dir", &state, "tail", "web1-"]);
    eventually("the job is a candidate", async || {
        words().iter().any(|word| word.starts_with(job.trim()))
    })
    .await;
    assert!(words().iter().all(|word| is_plain(word)), "{:?}", words());

    sshd.append("Host we\u{1b}[31mb\u{7}\u{202e}9\n  HostName 127.0.0.1\n");
    let config = sshd.ssh_config().display().to_string();
    for verb in [["run", "we"], ["hosts", "we"], ["put", "we"]] {
        let words = completed(&sshd, &[&["--ssh-config", &config], &verb[..]].concat());
        let is_plain = |word: &String| !word.contains(|c: char| c.is_control() || c == '\u{202e}');
        assert!(words.iter().all(is_plain), "{verb:?}: {words:?}");
        assert!(
            words.iter().any(|word| word.starts_with("web1")),
            "{verb:?}: {words:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_was_not_started_is_listed_as_such() {
    let sshd = hosts().await;
    let fleet = ["run", "web1,web2", "--canary", "1", "--", "false"];
    let run = sshjobs(&sshd, &fleet);
    assert_ne!(run.status.code(), Some(0));
    let jobs = told(&sshjobs(&sshd, &["jobs", "--json"]));
    let first: serde_json::Value = serde_json::from_str(jobs.lines().next().unwrap()).unwrap();
    let id = first["job_id"].as_str().unwrap();

    let listed = told(&sshjobs(&sshd, &["jobs", "--fleet", id]));

    let late = listed.lines().find(|line| line.contains("not started"));
    assert!(
        late.is_some_and(|line| !line.contains("starting")),
        "{listed}"
    );
    let is_days = |line: &str| {
        line.split_whitespace().any(|word| word == "20785d" || word.starts_with("207"))
    };
    assert!(!listed.lines().any(is_days), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_that_matches_nothing_starts_nothing() {
    let sshd = hosts().await;
    let ran = sshd.path("ran");
    let touch = format!("touch {}", ran.display());

    for hosts in ["web*,tag:missing", "nothing*", "web1,nothing*"] {
        let output = sshjobs(&sshd, &["run", hosts, "--", &touch]);

        assert_eq!(
            output.status.code(),
            Some(255),
            "{hosts}: {}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains("hint: "),
            "{hosts}: {}",
            stderr(&output)
        );
        assert!(!ran.exists(), "{hosts}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_line_has_its_time_when_that_is_wanted() {
    let sshd = hosts().await;
    let shown = told(&sshjobs(
        &sshd,
        &[
            "run",
            "web1,web2",
            "--timestamps",
            "--",
            "echo a; sleep 3; echo b",
        ],
    ));
    let mut seconds: Vec<&str> = shown
        .lines()
        .filter_map(|line| line.split_once('.'))
        .map(|(time, _)| time)
        .collect();
    assert_eq!(seconds.len(), 4, "{shown}");
    seconds.sort_unstable();
    seconds.dedup();
    assert!(
        seconds.len() >= 2 && seconds[0].starts_with("20"),
        "{shown}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn two_operators_follow_one_fleet_and_both_may_end_it() {
    let sshd = hosts().await;
    let line = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.2; done";
    let id = told(&sshjobs(&sshd, &["spawn", "web1,web2,db1", "--", line])).trim().to_owned();
    let follow = || {
        command(&sshd, &["tail", "-f", "--since", "0", "--json", &id])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let (one, other) = (follow(), follow());
    eventually("all of them have printed", async || {
        let listed = told(&sshjobs(&sshd, &["jobs", "--json"]));
        let mut jobs = listed.lines().filter_map(|line| serde_json::from_str(line).ok());
        jobs.any(|job: serde_json::Value| {
            job["job_id"] == id.as_str() && job["total_lines"].as_u64() > Some(30)
        })
    })
    .await;
    // Both at the same moment, and again if a busy machine could not be told in time.
    eventually("all of them are killed", async || {
        let signals = [["signal", id.as_str(), "KILL"]; 2]
            .map(|words| command(&sshd, &words).stderr(Stdio::null()).spawn().unwrap());
        for mut signal in signals {
            crate::support::exit_of(&mut signal).await;
        }
        told(&sshjobs(&sshd, &["jobs", "--fleet", &id])).matches("SIGKILL").count() == 3
    })
    .await;
    let [one, other] = [one, other].map(|child| told(&child.wait_with_output().unwrap()));
    assert!(
        one == other && one.lines().count() > 10,
        "{}\n{}",
        one.len(),
        other.len()
    );
    let waited = sshjobs(&sshd, &["wait", &id]);
    assert_eq!(waited.status.code(), Some(3), "{}", stderr(&waited));
    let members = told(&sshjobs(&sshd, &["jobs", "--fleet", &id]));
    assert_eq!(members.matches("SIGKILL").count(), 3, "{members}");
    let one_of_them = told(&sshjobs(
        &sshd,
        &["read", &format!("{id}/db1"), "--length", "1"],
    ));
    assert_eq!(one_of_them, "1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_stays_below_what_is_printed_meanwhile() {
    let sshd = hosts().await;
    let key = sshd.path("locked");
    ssh_keygen(&[
        "-q",
        "-t",
        "ed25519",
        "-N",
        "secret",
        "-f",
        &key.display().to_string(),
    ]);
    let public = std::fs::read_to_string(sshd.path("locked.pub")).unwrap();
    let accepted = std::fs::read_to_string(sshd.path("authorized_keys")).unwrap();
    std::fs::write(sshd.path("authorized_keys"), accepted + &public).unwrap();
    let config = std::fs::read_to_string(sshd.ssh_config()).unwrap();
    let of_one_host = config.lines().skip(1).take_while(|line| line.starts_with(' '));
    let locked: String = of_one_host
        .map(|line| match line.trim().starts_with("IdentityFile") {
            true => format!("  IdentityFile {}\n", key.display()),
            false => format!("{line}\n"),
        })
        .collect();
    sshd.append(&format!("Host locked\n{locked}"));
    let ping = format!(
        "XDG_CONFIG_HOME={} {} --ssh-config {} ping 'locked,web*'",
        sshd.path("no-config").display(),
        env!("CARGO_BIN_EXE_sshjobs"),
        sshd.ssh_config().display()
    );

    let tmux = Tmux::start(&ping, (120, 20));

    tmux.shows(&["passphrase", "web1 ", "web2 "]).await;
    let screen = tmux.screen();
    let rows: Vec<&str> = screen.trim_end().lines().collect();
    assert!(rows.last().unwrap().starts_with("(locked)"), "{screen}");
    for host in ["web1", "web2"] {
        assert!(rows.iter().any(|row| row.starts_with(host)), "{screen}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_needs_no_store() {
    let sshd = hosts().await;
    std::fs::write(sshd.path("config.toml"), "store = false\n").unwrap();
    let config = sshd.path("config.toml").display().to_string();
    let output = sshjobs(
        &sshd,
        &["--config", &config, "run", "web1,web2", "--", "seq 1000"],
    );
    assert_eq!(told(&output).lines().count(), 2000);
    assert!(
        stderr(&output).contains("2 hosts: 2 ok"),
        "{}",
        stderr(&output)
    );
    assert!(!sshd.path("state/sshjobs").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn ping_tells_what_answers_and_fails_when_something_does_not() {
    let sshd = hosts().await;
    let all = told(&sshjobs(&sshd, &["ping", "web*,db1"]));
    assert_eq!(
        all.lines().filter(|line| line.contains(" ms  OpenSSH_")).count(),
        3,
        "{all}"
    );
    let json = told(&sshjobs(&sshd, &["ping", "db1", "--json"]));
    let host: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(
        host["connected"] == true && host["connect_ms"].as_u64().is_some(),
        "{json}"
    );
    sshd.trust("other");
    let refused = sshjobs(&sshd, &["ping", "web*"]);
    assert_eq!(refused.status.code(), Some(255));
    assert!(String::from_utf8_lossy(&refused.stdout).contains("has changed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn ping_without_a_host_tells_whether_the_server_is_ready() {
    let sshd = hosts().await;
    let server = Server::start(&sshd);
    for address in [server.url.clone(), server.socket.display().to_string()] {
        let ready = told(&sshjobs(&sshd, &["--server", &address, "ping"]));
        assert!(ready.starts_with("ready  "), "{ready}");
    }
    let json = told(&sshjobs(
        &sshd,
        &["--server", &server.url, "ping", "--json"],
    ));
    let answer: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(
        answer["ready"] == true && answer["connect_ms"].as_u64().is_some(),
        "{json}"
    );

    let gone = server.url.clone();
    drop(server);
    let refused = sshjobs(&sshd, &["--server", &gone, "ping"]);
    assert_eq!(refused.status.code(), Some(255), "{}", stderr(&refused));
    assert!(
        stderr(&refused).contains("can't be reached"),
        "{}",
        stderr(&refused)
    );

    let as_json = sshjobs(&sshd, &["--server", &gone, "ping", "--json"]);
    assert_eq!(as_json.status.code(), Some(255), "{}", stderr(&as_json));
    let answer: serde_json::Value = serde_json::from_slice(&as_json.stdout).unwrap();
    assert_eq!(answer["ready"], false, "{answer}");
    assert_eq!(answer["error"]["code"], "unreachable", "{answer}");

    // Another program, which answers without an end.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let other = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = BufReader::new(&stream).lines();
            request.find(|line| line.as_ref().is_ok_and(String::is_empty));
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").ok();
            while stream.write_all(&[b'x'; 4096]).is_ok() {}
        }
    });
    let refused = sshjobs(&sshd, &["--server", &other, "ping"]);
    assert_eq!(refused.status.code(), Some(255), "{}", stderr(&refused));
    assert!(
        stderr(&refused).contains("is not an sshjobs server"),
        "{}",
        stderr(&refused)
    );

    let neither = sshjobs(&sshd, &["ping"]);
    assert_eq!(neither.status.code(), Some(2), "{}", stderr(&neither));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_man_pages_are_pages_for_man() {
    let sshd = hosts().await;
    let directory = sshd.path("man1");
    told(&sshjobs(
        &sshd,
        &["man", "--directory", directory.to_str().unwrap()],
    ));
    let names = std::fs::read_dir(&directory)
        .unwrap()
        .map(|page| page.unwrap().file_name().into_string().unwrap());
    let names: BTreeSet<String> = names.collect();
    assert!(
        names.contains("sshjobs.1") && names.contains("sshjobs-run.1"),
        "{names:?}"
    );
    let page = std::fs::read_to_string(directory.join("sshjobs-run.1")).unwrap();
    for part in [
        ".TH",
        "canary",
        "SYNOPSIS",
        "EXAMPLES",
        "EXIT STATUS",
        "ENVIRONMENT",
        "FILES",
        "SEE ALSO",
    ] {
        assert!(page.contains(part), "no {part} in {page}");
    }
    let printed = told(&sshjobs(&sshd, &["man", "run"]));
    assert_eq!(printed, page, "the same on stdout");
    assert!(told(&sshjobs(&sshd, &["man"])).contains("sshjobs\\-run(1)"));
    assert_eq!(sshjobs(&sshd, &["man", "rnu"]).status.code(), Some(2));
}

/// Completions that a shell offers for the last word.
fn completed(sshd: &Sshd, words: &[&str]) -> BTreeSet<String> {
    let output = command(sshd, &[]);
    let mut shell = std::process::Command::new(output.get_program());
    shell
        .arg("--")
        .arg("sshjobs")
        .args(words)
        .env("COMPLETE", "bash")
        .env("_CLAP_IFS", "\n");
    shell
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string())
        .env("XDG_CONFIG_HOME", sshd.path("no-config"));
    let output = shell.output().unwrap();
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|word| word.trim().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_completes_what_the_command_line_leads_to() {
    let sshd = hosts().await;
    let (config, state) = (sshd.ssh_config(), sshd.path("state/sshjobs"));
    let options = [
        "--ssh-config",
        config.to_str().unwrap(),
        "--state-dir",
        state.to_str().unwrap(),
    ];
    let after = |words: &[&str]| completed(&sshd, &[&options[..], words].concat());
    let set = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(after(&["run", "web1,"]), set(&["web1,web2", "web1,db1"]));
    assert_eq!(after(&["ping", "web1,!d"]), set(&["web1,!db1"]));
    assert_eq!(after(&["hosts", "d"]), set(&["db1"]));
    assert_eq!(after(&["help", "dur"]), set(&["durable"]));
    let id = told(&sshjobs(&sshd, &["spawn", "web1,db1", "--", "true"])).trim().to_owned();
    eventually("it is listed", async || {
        after(&["wait", "fleet"]) == set(&[&id])
    })
    .await;
    assert_eq!(after(&["jobs", "--fleet", ""]), set(&[&id]));
}

#[tokio::test(flavor = "multi_thread")]
async fn input_that_reaches_no_host_is_mentioned() {
    let sshd = hosts().await;
    std::fs::write(sshd.path("input"), "a line\n").unwrap();
    let run = |options: &[&str], input: &str| {
        let arguments = [&["run", "web1,web2"], options, &["--", "cat"]].concat();
        let input = std::fs::File::open(input).unwrap();
        stderr(&command(&sshd, &arguments).stdin(input).output().unwrap())
    };
    let file = sshd.path("input").display().to_string();

    assert!(run(&[], &file).contains("stdin is not passed on"));
    assert!(!run(&["-n"], &file).contains("stdin"));
    assert!(!run(&[], "/dev/null").contains("stdin"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_is_not_written_to_a_file_named_like_stdout() {
    let sshd = hosts().await;
    for option in ["--junit", "--joblog"] {
        let refused = sshjobs(&sshd, &["run", "web1,web2", option, "-", "--", "true"]);

        assert_eq!(refused.status.code(), Some(255), "{option}");
        assert!(
            stderr(&refused).contains("name a file"),
            "{}",
            stderr(&refused)
        );
    }
}

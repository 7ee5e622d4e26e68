//! Verbs for several jobs, their filters and aliases, at a pipe and on a terminal.

use crate::support::command::{sshjobs, told};
use crate::support::tmux::Tmux;
use crate::support::{HIDDEN, HOST, Sshd, eventually};

fn spawn(sshd: &Sshd, label: &str, command: &str) -> String {
    told(&sshjobs(
        sshd,
        &["spawn", "--label", label, HOST, "--", command],
    ))
    .trim()
    .to_owned()
}

fn stderr(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

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

#[tokio::test]
async fn a_job_is_named_by_the_unique_start_of_its_id_and_by_last() {
    let sshd = Sshd::start().await;
    let first = spawn(&sshd, "a", "echo first");
    told(&sshjobs(&sshd, &["wait", &first]));
    // The unique start of the only job.
    assert_eq!(told(&sshjobs(&sshd, &["log", "web1-"])), "first\n");
    let second = spawn(&sshd, "a", "echo second; exit 4");
    assert_eq!(sshjobs(&sshd, &["wait", "last"]).status.code(), Some(4));
    assert_eq!(told(&sshjobs(&sshd, &["tail", "last"])), "second\n");

    let ambiguous = sshjobs(&sshd, &["tail", "web1-"]);
    assert_eq!(ambiguous.status.code(), Some(2));
    assert!(
        stderr(&ambiguous).contains(&first) && stderr(&ambiguous).contains(&second),
        "{}",
        stderr(&ambiguous)
    );
    let unknown = sshjobs(&sshd, &["tail", "db9"]);
    assert_eq!(unknown.status.code(), Some(2));
}

#[tokio::test]
async fn as_many_last_lines_are_shown_as_were_asked_for() {
    let sshd = Sshd::start().await;
    let id = spawn(&sshd, "a", "seq 30000; seq 30000 >&2");
    told(&sshjobs(&sshd, &["wait", &id]));
    let last = |arguments: &[&str]| told(&sshjobs(&sshd, &[arguments, &[&id]].concat()));
    let whole = last(&["log"]);
    let expected: Vec<&str> = whole.lines().skip(20_000).collect();
    for verb in ["tail", "log"] {
        let shown = last(&[verb, "-n", "40000"]);
        assert!(shown.lines().eq(expected.iter().copied()), "{verb}");
    }
    assert_eq!(last(&["tail", "-n", "70000"]), whole);

    let of_stderr = sshjobs(&sshd, &["tail", "-n", "20000", "--stream", "stderr", &id]);
    let count = told(&of_stderr).lines().count();
    let note = format!("these are the last {count} of 20000 lines");
    assert!(stderr(&of_stderr).contains(&note), "{}", stderr(&of_stderr));
}

#[tokio::test]
async fn the_verbs_that_people_type_first_are_aliases() {
    let sshd = Sshd::start().await;
    let id = spawn(&sshd, "a", "echo one; sleep 600");
    eventually("it has printed", async || {
        told(&sshjobs(&sshd, &["logs", &id])) == "one\n"
    })
    .await;
    assert!(told(&sshjobs(&sshd, &["ps"])).contains(&id));
    told(&sshjobs(&sshd, &["kill", &id, "KILL"]));
    assert_eq!(sshjobs(&sshd, &["wait", &id]).status.code(), Some(137));
    assert_eq!(
        told(&sshjobs(&sshd, &["exec", HOST, "--", "echo two"])),
        "two\n"
    );
}

#[tokio::test]
async fn several_jobs_are_signalled_and_forgotten_although_one_has_ended() {
    let sshd = Sshd::start().await;
    let ended = spawn(&sshd, "a", "true");
    told(&sshjobs(&sshd, &["wait", &ended]));
    let running = spawn(&sshd, "a", "sleep 600");
    let output = sshjobs(&sshd, &["signal", &ended, &running, "KILL"]);
    let answer = stderr(&output);
    // An ordinary user does not see all processes, and so can't be sure.
    assert!(
        (output.status.code() == Some(255) && answer.contains("job_ended"))
            || answer.contains(HIDDEN),
        "one of them could not be signalled: {output:?}"
    );
    assert_eq!(sshjobs(&sshd, &["wait", &running]).status.code(), Some(137));

    let other = spawn(&sshd, "a", "sleep 600");
    let output = sshjobs(&sshd, &["forget", &other, &ended]);
    assert!(
        stderr(&output).contains("still_running"),
        "{}",
        stderr(&output)
    );
    let left = told(&sshjobs(&sshd, &["ps"]));
    assert!(!left.contains(&ended) && left.contains(&other), "{left}");
    told(&sshjobs(&sshd, &["forget", "--force", &other]));
}

#[tokio::test]
async fn filters_select_the_jobs_that_a_verb_can_be_used_on() {
    let sshd = Sshd::start().await;
    let ended = spawn(&sshd, "nightly", "echo done");
    told(&sshjobs(&sshd, &["wait", &ended]));
    let running = spawn(&sshd, "nightly", "sleep 600");
    let other = spawn(&sshd, "other", "sleep 600");

    // At a pipe nobody is asked; the job that has ended is no error.
    told(&sshjobs(
        &sshd,
        &["kill", "--label", "nightly", "-s", "KILL"],
    ));
    assert_eq!(sshjobs(&sshd, &["wait", &running]).status.code(), Some(137));
    let log = told(&sshjobs(&sshd, &["log", "--label", "nightly"]));
    assert!(log.contains(&format!("==> {ended} <==\ndone\n")), "{log}");

    told(&sshjobs(
        &sshd,
        &["forget", "--label", "nightly", "--older", "1ms"],
    ));
    let left = told(&sshjobs(&sshd, &["ps"]));
    assert!(
        left.contains(&other) && !left.contains(&ended) && !left.contains(&running),
        "{left}"
    );

    let brief = spawn(&sshd, "brief", "exit 3");
    eventually("jobs shows that it has ended", async || {
        let jobs = told(&sshjobs(
            &sshd,
            &["jobs", "--label", "brief", "--state", "exited"],
        ));
        jobs.contains(&brief)
    })
    .await;
    told(&sshjobs(
        &sshd,
        &["forget", "--label", "brief", "--state", "exited"],
    ));

    let none = sshjobs(&sshd, &["forget", "--caller", "nobody"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(stderr(&none).contains("no job passes this filter"));
    let mistake = sshjobs(&sshd, &["forget", "--state", "done"]);
    assert_eq!(mistake.status.code(), Some(2));
    let nothing = sshjobs(&sshd, &["forget"]);
    assert_eq!(nothing.status.code(), Some(2));
    told(&sshjobs(&sshd, &["kill", "--all", "KILL"]));
}

#[tokio::test]
async fn a_person_sees_what_a_filter_selects_and_is_asked() {
    let sshd = Sshd::start().await;
    let id = spawn(&sshd, "a", "sleep 600");
    let refused = Tmux::start(&command_line(&sshd, "kill --label a"), (100, 20));
    refused.shows(&[&id, "send TERM to 1 job? [y/N]"]).await;
    refused.press(&["Enter"]);
    refused.shows(&["nothing was done", "ended with 1"]).await;
    assert!(told(&sshjobs(&sshd, &["ps"])).contains("running"));

    let agreed = Tmux::start(&command_line(&sshd, "kill --label a KILL"), (100, 20));
    agreed.shows(&["send KILL to 1 job? [y/N]"]).await;
    agreed.text("y");
    agreed.press(&["Enter"]);
    agreed.shows(&["ended with 0"]).await;
    assert_eq!(sshjobs(&sshd, &["wait", &id]).status.code(), Some(137));

    let unasked = Tmux::start(&command_line(&sshd, "forget --label a --yes"), (100, 20));
    unasked.shows(&[&id, "ended with 0"]).await;
}

#[tokio::test]
async fn wait_for_any_prints_the_job_that_has_ended() {
    let sshd = Sshd::start().await;
    let slow = spawn(&sshd, "a", "sleep 600");
    let fast = spawn(&sshd, "a", "exit 3");
    let output = sshjobs(&sshd, &["wait", "--any", &slow, &fast]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{fast}\n"));
    told(&sshjobs(&sshd, &["kill", &slow, "KILL"]));
}

#[tokio::test]
async fn a_wait_for_a_label_counts_jobs_that_have_ended_before() {
    let sshd = Sshd::start().await;
    let failed = spawn(&sshd, "nightly", "exit 3");
    assert_eq!(sshjobs(&sshd, &["wait", &failed]).status.code(), Some(3));
    let wait =
        |options: &[&str]| sshjobs(&sshd, &[&["wait", "--label", "nightly"], options].concat());
    assert_eq!(wait(&[]).status.code(), Some(3));

    let go = sshd.path("go");
    let until_go = format!("while [ ! -e {} ]; do sleep 0.1; done", go.display());
    let succeeds = spawn(&sshd, "nightly", &until_go);
    assert_eq!(wait(&["--timeout", "1ms"]).status.code(), Some(124));
    let any = wait(&["--any"]);
    assert_eq!(String::from_utf8_lossy(&any.stdout), format!("{failed}\n"));
    std::fs::write(&go, "").unwrap();
    let all = wait(&["--json"]);
    assert_eq!(all.status.code(), Some(3));
    let lines = String::from_utf8_lossy(&all.stdout).into_owned();
    assert!(
        lines.contains(&failed) && lines.contains(&succeeds),
        "{lines}"
    );

    let none = wait(&["--state", "running"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(stderr(&none).contains("no job passes this filter"));
}

#[tokio::test]
async fn an_empty_key_is_refused_because_no_caller_means_it() {
    let sshd = Sshd::start().await;
    let refused = sshjobs(&sshd, &["spawn", "--key", "", HOST, "--", "true"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        stderr(&refused).contains("key is empty"),
        "{}",
        stderr(&refused)
    );
    assert_eq!(told(&sshjobs(&sshd, &["jobs", "--json"])), "");
}

#[tokio::test]
async fn the_list_is_sorted_and_shows_exit_and_time() {
    let sshd = Sshd::start().await;
    let long = spawn(&sshd, "a", "seq 5; sleep 5; exit 7");
    assert_eq!(sshjobs(&sshd, &["wait", &long]).status.code(), Some(7));
    let short = spawn(&sshd, "b", "true");
    told(&sshjobs(&sshd, &["wait", &short]));
    let order = |sort: &str| {
        let listed = told(&sshjobs(&sshd, &["ps", "--sort", sort]));
        // Between the head and the counts.
        listed
            .lines()
            .skip(1)
            .take(2)
            .map(|line| line.split(' ').next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(order("age"), [short.clone(), long.clone()]);
    assert_eq!(order("duration"), [long.clone(), short.clone()]);
    assert_eq!(order("lines"), [long.clone(), short]);
    let listed = told(&sshjobs(&sshd, &["ps", "--label", "a"]));
    let row: Vec<&str> = listed.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..4], [long.as_str(), HOST, "exit", "7"]);
    // A busy machine needs longer than the command.
    let seconds: u64 = row[5].trim_end_matches('s').parse().unwrap();
    assert!(seconds >= 1, "{listed}");
    assert_eq!(row[6], "5", "{listed}");
}

#[tokio::test]
async fn the_list_is_watched() {
    let sshd = Sshd::start().await;
    let watched = Tmux::start(&command_line(&sshd, "ps --watch=0.2"), (100, 20));
    watched.shows(&["JOB", "COMMAND"]).await;
    let id = spawn(&sshd, "a", "sleep 1");
    watched.shows(&[&id, "running"]).await;
    watched.shows(&[&id, "exit 0"]).await;
}

#[tokio::test]
async fn a_log_is_shown_in_the_pager_with_the_colours_of_the_program() {
    let sshd = Sshd::start().await;
    let id = spawn(
        &sshd,
        "a",
        "seq 100; printf '\\033[32mgreen\\033[0m\\033]0;title\\007\\n'; echo bad >&2",
    );
    told(&sshjobs(&sshd, &["wait", &id]));
    let pager = Tmux::start(&command_line(&sshd, &format!("log {id}")), (80, 20));
    pager.shows(&["1\n2\n"]).await;
    pager.text("G");
    pager.shows(&["green", "bad", "100"]).await;
    let coloured = pager.coloured();
    assert!(
        coloured.contains("\u{1b}[32mgreen") && coloured.contains("\u{1b}[31mbad"),
        "{coloured:?}"
    );
    pager.text("q");
    pager.shows(&["ended with 0"]).await;

    let other = Tmux::start(
        &command_line(&sshd, &format!("log {id} -n 3 --no-pager")),
        (80, 20),
    );
    other.shows(&["100\ngreen\nbad", "ended with 0"]).await;
    let own = format!(
        "PAGER='head -n 2' {}",
        command_line(&sshd, &format!("log {id}"))
    );
    let own = Tmux::start(&own, (80, 20));
    own.shows(&["1\n2\n", "ended with 0"]).await;
    // In a pipe there are no colours.
    let plain = told(&sshjobs(&sshd, &["log", &id, "--grep", "green|bad"]));
    assert_eq!(plain, "green\nbad\n");
}

#[tokio::test]
async fn several_jobs_are_followed_with_their_names() {
    let sshd = Sshd::start().await;
    let one = spawn(&sshd, "a", "echo one; sleep 0.3; echo two");
    let other = spawn(&sshd, "a", "echo three");
    let followed = told(&sshjobs(&sshd, &["log", "-f", "--label", "a"]));
    let mut lines: Vec<&str> = followed.lines().collect();
    lines.sort_unstable();
    let mut expected = [
        format!("{one}: one"),
        format!("{one}: two"),
        format!("{other}: three"),
    ];
    expected.sort_unstable();
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn a_mistyped_signal_sends_nothing() {
    let sshd = Sshd::start().await;
    let id = spawn(&sshd, "a", "sleep 600");
    for word in ["HPU", "99", "nosuch"] {
        let output = sshjobs(&sshd, &["signal", &id, word]);
        assert_eq!(output.status.code(), Some(2), "{word}: {}", stderr(&output));
        assert!(told(&sshjobs(&sshd, &["ps"])).contains("running"), "{word}");
    }
    let output = sshjobs(&sshd, &["forget", "--force", &id, "nosuch"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(told(&sshjobs(&sshd, &["ps"])).contains("running"));
    let both = sshjobs(&sshd, &["kill", "--label", "a", &id]);
    assert_eq!(both.status.code(), Some(2), "a job and a filter");
    told(&sshjobs(&sshd, &["kill", "-9", &id]));
    assert_eq!(sshjobs(&sshd, &["wait", &id]).status.code(), Some(137));
}

#[tokio::test]
async fn the_first_look_at_a_job_that_nobody_follows_shows_all_of_it() {
    let sshd = Sshd::start().await;
    for _ in 0..5 {
        let id = spawn(&sshd, "a", "seq 20000; sleep 600");
        // Its output is on the host, and nobody has asked for it yet.
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        assert_eq!(told(&sshjobs(&sshd, &["tail", "-n", "1", &id])), "20000\n");
        told(&sshjobs(&sshd, &["kill", "-9", &id]));
    }
}

#[tokio::test]
async fn a_durable_job_on_a_terminal_tells_how_it_ended() {
    let sshd = Sshd::start().await;
    let start = |command: &str| {
        told(&sshjobs(&sshd, &["spawn", "--pty", HOST, "--", command]))
            .trim()
            .to_owned()
    };
    for (command, expected) in [("exit 3", 3), ("kill -TERM $$", 143), ("true", 0)] {
        let id = start(command);
        assert_eq!(
            sshjobs(&sshd, &["wait", &id]).status.code(),
            Some(expected),
            "{command}"
        );
    }
    for (signal, expected) in [("TERM", 143), ("INT", 130), ("HUP", 129), ("KILL", 137)] {
        let id = start("echo ready; exec sleep 600");
        eventually("it runs", async || {
            told(&sshjobs(&sshd, &["log", &id])).contains("ready")
        })
        .await;
        told(&sshjobs(&sshd, &["signal", &id, signal]));
        assert_eq!(
            sshjobs(&sshd, &["wait", &id]).status.code(),
            Some(expected),
            "{signal}"
        );
    }
}

#[tokio::test]
async fn a_durable_job_has_the_umask_of_the_login_shell() {
    let sshd = Sshd::start().await;
    let expected = told(&sshjobs(&sshd, &["run", HOST, "--", "umask"]));
    for pty in [&[][..], &["--pty"]] {
        let words = [&["spawn"], pty, &[HOST, "--", "umask"]].concat();
        let id = told(&sshjobs(&sshd, &words)).trim().to_owned();
        told(&sshjobs(&sshd, &["wait", &id]));
        assert_eq!(told(&sshjobs(&sshd, &["log", &id])), expected);
    }
}

//! `sshjobs top` on real terminals: those of tmux, some of them over ssh.

use crate::support::command::{command as command_of, sshjobs, told};
use crate::support::tmux::Tmux;
use crate::support::{Sshd, eventually};

/// The command line of `top`, for a shell.
fn top(sshd: &Sshd) -> String {
    let (program, dir) = (
        env!("CARGO_BIN_EXE_sshjobs"),
        sshd.path("").display().to_string(),
    );
    format!(
        "XDG_CONFIG_HOME={dir}/no-config {program} --ssh-config {dir}/ssh_config --state-dir {dir}/state/sshjobs top"
    )
}

/// Starts a durable job; its id.
fn spawn(sshd: &Sshd, command: &str) -> String {
    told(&sshjobs(sshd, &["spawn", "web1", "--stdin", "--", command]))
        .trim()
        .to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_watched_searched_answered_and_signalled_by_keys_over_ssh() {
    let sshd = Sshd::start().await;
    let talks = "i=0; while [ $i -lt 200 ]; do i=$((i+1)); echo line $i; done; printf 'name? '; read n; echo \"hello $n\" >&2; sleep 600";
    let job = spawn(&sshd, talks);
    let ssh = format!("ssh -t -F {} web1", sshd.ssh_config().display());
    let tmux = Tmux::start(&format!("{ssh} '{}'", top(&sshd)), (100, 30));
    tmux.shows(&[&job, "1 job, 1 waiting", "line 200", "name?", "of 200"]).await;

    tmux.text("/line 42$");
    tmux.press(&["Enter"]);
    tmux.shows(&["line 42\n", "line 41", "line 43", "one match", "G follows"]).await;
    tmux.press(&["g"]);
    tmux.shows(&["line 1\n", "lines 1–"]).await;
    tmux.press(&["G"]);

    tmux.shows(&["waits for input", "waits  "]).await;
    tmux.text("aworld");
    tmux.shows(&["answer: world"]).await;
    tmux.press(&["Enter"]);
    tmux.shows(&["hello world", "5 characters and a newline"]).await;

    tmux.resize((60, 9));
    tmux.shows(&["sshjobs top", &job]).await;
    tmux.press(&["Enter"]);
    tmux.shows(&["line 200", "hello world"]).await;
    tmux.resize((100, 30));
    tmux.press(&["Escape", "s"]);
    tmux.shows(&["k KILL"]).await;
    tmux.press(&["k"]);
    tmux.shows(&["signaled", "SIGKILL", "1 job, 0 running"]).await;

    tmux.press(&["q"]);
    tmux.shows(&["ended with 0"]).await;
    assert!(
        !tmux.screen().contains("sshjobs top"),
        "the screen is given back:\n{}",
        tmux.screen()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_is_opened_and_its_members_are_read_one_by_one() {
    let sshd = Sshd::start().await;
    sshd.alias(["db1", "db2"]);
    let fleet = ["spawn", "web1,db1,db2", "--", "echo here; test $$ -lt 0"];
    let fleet = told(&sshjobs(&sshd, &fleet)).trim().to_owned();
    let tmux = Tmux::start(&top(&sshd), (100, 30));
    tmux.shows(&[&fleet, "3 failed", "db1 | here", "web1 | here"]).await;
    tmux.press(&["Enter"]);
    tmux.shows(&["3 members", &format!("{fleet}/db1"), "exit 1"]).await;
    tmux.press(&["j", "j", "Enter"]);
    tmux.shows(&[&format!("── {fleet}/"), "here"]).await;
    // Two Escapes that arrive together are one.
    eventually("the output fills the screen", async || {
        !tmux.screen().contains("COMMAND")
    })
    .await;
    tmux.press(&["Escape"]);
    tmux.shows(&["COMMAND", "3 members"]).await;
    tmux.press(&["Escape"]);
    tmux.shows(&["1 job,", "3 failed"]).await;
    tmux.press(&["C-c"]);
    tmux.shows(&["ended with 0"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_an_answer_is_told_of_jobs_that_are_not_selected() {
    let sshd = Sshd::start().await;
    let asking = spawn(&sshd, "printf 'name? '; read n; sleep 600");
    let selected = spawn(&sshd, "sleep 600");
    let ended = ["spawn", "web1,db1", "--canary", "1", "--", "false"];
    sshd.alias(["db1"]);
    told(&sshjobs(&sshd, &ended));

    let tmux = Tmux::start(&top(&sshd), (110, 24));

    tmux.shows(&[&asking, &selected, "waits", "1 failed, 1 not started"]).await;
    tmux.press(&["q"]);
    tmux.shows(&["ended with 0"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_job_prints_stays_in_its_place_and_colours_can_be_had_without() {
    let sshd = Sshd::start().await;
    let job = spawn(
        &sshd,
        r#"printf "\033[2J\033[1;1Hgone\033]0;title\007\tx\n"; echo 東京; echo bad >&2; read a"#,
    );
    let tmux = Tmux::start(&format!("NO_COLOR=1 {}", top(&sshd)), (80, 20));
    tmux.shows(&["sshjobs top", &job, "gone    x", "東京", "bad"]).await;
    let colours =
        |tmux: &Tmux| ["[38;5;1m", "[38;5;2m"].iter().any(|code| tmux.coloured().contains(code));
    assert!(!colours(&tmux), "{}", tmux.coloured());
    let tmux = Tmux::start(&top(&sshd), (80, 20));
    tmux.shows(&[&job, "bad"]).await;
    assert!(colours(&tmux), "{}", tmux.coloured());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tiny_terminal_works_and_without_a_terminal_the_error_says_what_to_do() {
    let sshd = Sshd::start().await;
    let job = spawn(&sshd, "echo here; read a");
    let tmux = Tmux::start(&top(&sshd), (20, 5));
    tmux.shows(&["sshjobs top", &job]).await;
    for (size, key) in [
        ((3, 2), "j"),
        ((1, 1), "?"),
        ((200, 60), "r"),
        ((20, 5), "Enter"),
        ((90, 20), "/"),
    ] {
        tmux.resize(size);
        tmux.press(&[key]);
    }
    tmux.press(&["Escape"]);
    tmux.shows(&["here"]).await;
    let told = sshjobs(&sshd, &["top"]);
    let stderr = String::from_utf8(told.stderr).unwrap();
    assert_eq!(told.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("top needs a terminal") && stderr.contains("tail -f"),
        "{stderr}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn several_jobs_are_marked_and_forgotten_and_the_list_is_filtered() {
    let sshd = Sshd::start().await;
    let one = spawn(&sshd, "echo first");
    let other = spawn(&sshd, "echo second");
    let running = spawn(&sshd, "sleep 600");
    for job in [&one, &other] {
        told(&sshjobs(&sshd, &["wait", job]));
    }
    let tmux = Tmux::start(&top(&sshd), (110, 20));
    tmux.shows(&["3 jobs, 1 running", "STATE", "TIME"]).await;
    tmux.text("Fsecond");
    tmux.press(&["Enter"]);
    tmux.shows(&["1 of 3 jobs with"]).await;
    tmux.press(&["F", "C-u", "Enter"]);
    tmux.shows(&["3 jobs, 1 running"]).await;

    // The newest, which runs, is not marked.
    tmux.press(&["k", "k", "j", "m", "m"]);
    tmux.shows(&["2 marked", &format!("*{one}"), &format!("*{other}")]).await;
    tmux.press(&["d"]);
    tmux.shows(&["delete 2 marked jobs, and all output? y yes"]).await;
    tmux.press(&["y"]);
    tmux.shows(&["2 deleted", "1 job, 1 running"]).await;
    assert!(!told(&sshjobs(&sshd, &["ps"])).contains(&one));

    tmux.press(&["x"]);
    tmux.shows(&["x means nothing here"]).await;
    tmux.press(&["d", "y"]);
    tmux.shows(&["still runs"]).await;
    tmux.press(&["q"]);
    told(&sshjobs(&sshd, &["kill", &running, "KILL"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn panels_show_processes_the_queue_and_why_a_job_ended() {
    let sshd = Sshd::start().await;
    let running = spawn(&sshd, "sleep 611 & wait");
    let queue = |command: &str| {
        let arguments = ["spawn", "--queue", "deploy", "web1", "--", command];
        // A queued job needs a process that waits for its turn.
        Background(command_of(&sshd, &arguments).spawn().unwrap())
    };
    let _first = queue("sleep 612");
    let listed = || told(&sshjobs(&sshd, &["ps"]));
    eventually("the first of the queue runs", async || {
        listed().contains("sleep 612")
    })
    .await;
    let _second = queue("echo second of the queue");
    let tmux = Tmux::start(&top(&sshd), (110, 24));
    tmux.shows(&["3 jobs", &running, "queued"]).await;
    let list = Tmux::start(&top(&sshd).replace(" top", " jobs"), (110, 24));
    list.shows(&["queued", "COMMAND", "echo second of the queue"]).await;

    tmux.press(&["Q"]);
    tmux.shows(&[
        "queues",
        "deploy: 1 at a time",
        "#1",
        "echo second of the queue",
    ])
    .await;
    let _third = queue("echo third of the queue");
    tmux.shows(&["#2", "echo third of the queue"]).await;
    tmux.press(&["j", "j", "j", "t"]);
    let first_place = || {
        let screen = tmux.screen();
        screen
            .lines()
            .any(|line| line.contains("#1") && line.contains("third of the queue"))
    };
    eventually("the third job is the first to start", async || {
        first_place()
    })
    .await;
    tmux.press(&["h"]);
    tmux.shows(&["▸   -    held"]).await;
    tmux.press(&["r"]);
    eventually("it has its place again", async || first_place()).await;
    tmux.press(&["Escape"]);
    tmux.text("F611");
    tmux.press(&["Enter", "i"]);
    tmux.shows(&["WAITS FOR", "sleep 611", "a timer", "a child"]).await;
    tmux.press(&["Escape", "s", "t"]);
    tmux.shows(&["SIGTERM"]).await;
    tmux.press(&["i"]);
    tmux.shows(&[
        "was ended by SIGTERM, which was sent through sshjobs",
        "processor time",
    ])
    .await;
    tmux.press(&["Escape", "q"]);
    tmux.shows(&["ended with 0"]).await;
}

/// A process that ends with the test.
struct Background(std::process::Child);

impl Drop for Background {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_job_is_seen_by_its_screen_and_joined() {
    let sshd = Sshd::start().await;
    let program =
        r#"printf "\033[2J\033[3;5Hmenu \033[7mfirst\033[0m"; read x; echo "you said $x"; read y"#;
    let command = ["spawn", "--pty", "--stdin", "web1", "--", program];
    let job = told(&sshjobs(&sshd, &command)).trim().to_owned();
    let tmux = Tmux::start(&top(&sshd), (100, 30));
    tmux.shows(&[&job, "screen 80×24, v shows lines", "    menu first"]).await;
    tmux.press(&["v"]);
    tmux.shows(&["\nmenu first"]).await;
    tmux.press(&["t"]);
    // In its place on the terminal: the list shows the line without the spaces.
    tmux.shows(&["    menu first"]).await;
    tmux.text("hello");
    tmux.press(&["Enter"]);
    tmux.shows(&["you said hello"]).await;
    tmux.press(&["Enter"]);
    tmux.shows(&["back from the job's terminal", "sshjobs top"]).await;
    tmux.press(&["l"]);
    // The prompt of less: the list shows the output, too.
    tmux.shows(&["you said hello", "(END)"]).await;
    tmux.press(&["q"]);
    tmux.shows(&["sshjobs top", &job]).await;
    tmux.press(&["q"]);
    tmux.shows(&["ended with 0"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn colours_of_the_program_are_shown_and_the_help_scrolls_on_a_small_terminal() {
    let sshd = Sshd::start().await;
    spawn(&sshd, r#"printf "a\033[35mpurple\033[0mb\n"; sleep 600"#);
    let tmux = Tmux::start(&top(&sshd), (60, 16));
    tmux.shows(&["apurpleb"]).await;
    assert!(
        tmux.coloured().contains("[35mpurple"),
        "{:?}",
        tmux.coloured()
    );

    tmux.resize((40, 10));
    tmux.press(&["?"]);
    tmux.shows(&["select a job, or scroll", "open a fleet, or the output"]).await;
    tmux.press(&["PageDown", "PageDown", "PageDown", "PageDown", "j"]);
    tmux.shows(&["quit; jobs continue"]).await;
    tmux.press(&["Escape", "q"]);
    tmux.shows(&["ended with 0"]).await;
}

#[tokio::test]
async fn top_ends_in_order_when_its_terminal_closes() {
    let sshd = Sshd::start().await;
    let job = spawn(&sshd, "sleep 60");
    let status = sshd.path("status");
    // The shell outlives its terminal, to note how the program ended.
    let command = format!("trap '' HUP; {}; echo $? >{}", top(&sshd), status.display());
    let tmux = Tmux::start(&command, (100, 30));
    tmux.shows(&[&job]).await;
    drop(tmux);
    eventually("top ends", async || {
        status.metadata().is_ok_and(|file| file.len() > 0)
    })
    .await;
    let status = std::fs::read_to_string(status).unwrap();
    // By the signal, or by an error of the terminal, whichever comes first; not by a panic.
    assert!(["129\n", "255\n"].contains(&status.as_str()), "{status}");
}

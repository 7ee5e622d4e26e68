//! `sshjobs attach`: people on terminals (tmux) that share the terminal of a job.

use crate::support::command::{sshjobs, told};
use crate::support::server::{Server, token};
use crate::support::tmux::Tmux;
use crate::support::{HOST, Sshd, eventually};

const SIZE: (u16, u16) = (80, 24);

/// A program that draws, and shows each key and the size of its terminal.
const PROGRAM: &str = "trap 'printf \"\\033[3;1Hsize %s\\033[K\" \"$(stty size)\"' WINCH; stty -echo -icanon min 0 time 2; \
    printf '\\033[?1049h\\033[2J\\033[1;1Hprogram\\033[3;1Hsize %s' \"$(stty size)\"; \
    while :; do k=$(dd bs=1 count=1 2>/dev/null); case $k in q) break;; ?) printf '\\033[2;1Hkey %s\\033[K' \"$k\";; esac; done; \
    printf '\\033[?1049l'; exit 7";

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

fn spawn(sshd: &Sshd) -> String {
    told(&sshjobs(sshd, &["spawn", "--pty", HOST, "--", PROGRAM])).trim().to_owned()
}

async fn is_over(sshd: &Sshd, id: &str) {
    eventually("the job is over", async || {
        told(&sshjobs(sshd, &["jobs", "--json"]))
            .lines()
            .any(|line| line.contains(id) && line.contains("\"exit_status\":7"))
    })
    .await;
}

#[tokio::test]
async fn a_person_sits_in_a_job_again_after_detaching() {
    let sshd = Sshd::start().await;
    let id = spawn(&sshd);
    let attach = command_line(&sshd, &format!("attach {id}"));
    let first = Tmux::start(&attach, SIZE);
    first.shows(&["program", "size 24 80"]).await;
    first.text("a");
    first.shows(&["key a"]).await;
    first.press(&["Enter"]);
    first.text("~.");
    first.shows(&["detached; `sshjobs attach", "ended with 0"]).await;

    let second = Tmux::start(&attach, (60, 20));
    second.shows(&["program", "size 20 60"]).await;
    second.text("q");
    second.shows(&["ended with 7"]).await;
    is_over(&sshd, &id).await;
}

#[tokio::test]
async fn two_people_attached_at_once_see_the_same_and_type_both() {
    let sshd = Sshd::start().await;
    let id = spawn(&sshd);
    let attach = command_line(&sshd, &format!("attach {id}"));
    let one = Tmux::start(&attach, SIZE);
    one.shows(&["program"]).await;
    let other = Tmux::start(&attach, SIZE);
    other.shows(&["program"]).await;
    one.text("a");
    one.shows(&["key a"]).await;
    other.shows(&["key a"]).await;
    other.text("b");
    one.shows(&["key b"]).await;
    other.shows(&["key b"]).await;
    one.resize((100, 30));
    one.shows(&["size 30 100"]).await;
    other.text("q");
    one.shows(&["ended with 7"]).await;
    other.shows(&["ended with 7"]).await;
}

#[tokio::test]
async fn a_terminal_session_that_was_cut_off_is_continued() {
    let sshd = Sshd::start().await;
    let run = command_line(
        &sshd,
        &format!(
            "run -t --durable {HOST} -- '{}'",
            PROGRAM.replace('\'', "'\\''")
        ),
    );
    let cut = Tmux::start(&run, SIZE);
    cut.shows(&["program"]).await;
    cut.text("x");
    cut.shows(&["key x"]).await;
    // The terminal closes, as with a laptop's lid.
    drop(cut);

    let listed = told(&sshjobs(&sshd, &["jobs", "--json"]));
    let job: serde_json::Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
    let id = job["job_id"].as_str().unwrap();
    let again = Tmux::start(&command_line(&sshd, &format!("attach {id}")), SIZE);
    again.shows(&["program", "key x"]).await;
    again.text("q");
    again.shows(&["ended with 7"]).await;
}

#[tokio::test]
async fn a_person_attaches_through_a_server_and_again_when_it_was_killed() {
    let sshd = Sshd::start().await;
    let id = spawn(&sshd);
    let server = Server::start(&sshd);
    let secret = token(&sshd, "me", &["--role", "admin"]);
    let through = format!(
        "SSHJOBS_TOKEN={secret} {} --server {} attach {id}",
        env!("CARGO_BIN_EXE_sshjobs"),
        server.url
    );
    let person = Tmux::start(&through, SIZE);
    person.shows(&["program", "size 24 80"]).await;
    person.text("a");
    person.shows(&["key a"]).await;
    drop(server);
    person.shows(&["the job continues: `sshjobs attach", "ended with 255"]).await;

    let server = Server::start(&sshd);
    let through = format!(
        "SSHJOBS_TOKEN={secret} {} --server {} attach {id}",
        env!("CARGO_BIN_EXE_sshjobs"),
        server.url
    );
    let person = Tmux::start(&through, SIZE);
    person.shows(&["program", "key a"]).await;
    person.text("q");
    person.shows(&["ended with 7"]).await;
}

#[tokio::test]
async fn attach_refuses_a_job_without_a_terminal_or_after_its_end() {
    let sshd = Sshd::start().await;
    let refused = sshjobs(&sshd, &["attach", "web1-00000000"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("needs a terminal"));

    let plain = told(&sshjobs(&sshd, &["spawn", HOST, "--", "sleep 60"])).trim().to_owned();
    let person = Tmux::start(&command_line(&sshd, &format!("attach {plain}")), SIZE);
    person.shows(&["does not run on a terminal", "ended with 2"]).await;

    told(&sshjobs(&sshd, &["signal", &plain, "KILL"]));
    let person = Tmux::start(&command_line(&sshd, &format!("attach {plain}")), SIZE);
    person.shows(&["has ended", "ended with 255"]).await;
}

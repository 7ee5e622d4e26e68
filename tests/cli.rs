//! The built binary, as a person or a CI script uses it.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::support::{HOST, Sshd, eventually, exit_of};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn sshjobs(sshd: &Sshd) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sshjobs"));
    command
        .arg("--ssh-config")
        .arg(sshd.ssh_config())
        .env("XDG_CONFIG_HOME", sshd.path("no-config"))
        .env("XDG_STATE_HOME", sshd.path("state"))
        .stdin(Stdio::null());
    command
}

fn run(sshd: &Sshd, command: &str) -> Output {
    sshjobs(sshd).args(["run", HOST, "--", command]).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn output_and_exit_code_of_the_command_become_ours() {
    let sshd = Sshd::start().await;
    let output = run(&sshd, "echo out; echo err >&2; printf unfinished; exit 42");
    assert_eq!(
        (text(&output.stdout), text(&output.stderr)),
        ("out\nunfinished".into(), "err\n".into())
    );
    assert_eq!(output.status.code(), Some(42));
}

#[tokio::test]
async fn a_signal_becomes_128_and_its_number() {
    let sshd = Sshd::start().await;
    assert_eq!(run(&sshd, "kill -9 $$").status.code(), Some(137));
}

#[tokio::test]
async fn quit_and_interrupt_end_the_command_and_leave_none_of_its_processes() {
    let sshd = Sshd::start().await;
    // 3 is the status of the trap.
    for (signal, code) in [(Signal::SIGQUIT, 131), (Signal::SIGINT, 3)] {
        let script = "trap 'sleep 0.2; exit 3' INT; echo $$; while :; do sleep 0.05; done";
        let mut running = sshjobs(&sshd)
            .args(["run", HOST, "--", script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Read from the program, which knows then that the command has started.
        let mut line = String::new();
        BufReader::new(running.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let remote: i32 = line.trim().parse().unwrap();

        kill(Pid::from_raw(running.id().cast_signed()), signal).unwrap();

        assert_eq!(exit_of(&mut running).await, Some(code), "{signal}");
        eventually("its process ends", async || {
            kill(Pid::from_raw(remote), None).is_err()
        })
        .await;
    }
}

#[tokio::test]
async fn a_limit_of_file_sizes_is_an_error_of_the_output() {
    let sshd = Sshd::start().await;
    let program = sshjobs(&sshd);
    let arguments: Vec<_> = program.get_args().collect();
    let output = Command::new("sh")
        .args(["-c", "ulimit -f 8; exec \"$@\" >\"$0\""])
        .arg(sshd.path("limited"))
        .arg(program.get_program())
        .args(arguments)
        .args(["run", HOST, "--", "seq 100000"])
        .env("XDG_CONFIG_HOME", sshd.path("no-config"))
        .env("XDG_STATE_HOME", sshd.path("state"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(74), "{output:?}");
}

#[tokio::test]
async fn the_servers_variable_is_for_verbs_about_jobs() {
    let sshd = Sshd::start().await;
    let by_variable = sshjobs(&sshd)
        .arg("config")
        .env("SSHJOBS_SERVER", "http://127.0.0.1:1")
        .output()
        .unwrap();
    assert_eq!(by_variable.status.code(), Some(0), "{by_variable:?}");

    let by_option = sshjobs(&sshd)
        .args(["config", "--server", "http://127.0.0.1:1"])
        .output()
        .unwrap();
    assert_eq!(by_option.status.code(), Some(2));
    assert!(text(&by_option.stderr).contains("config does not work with --server"));
}

#[tokio::test]
async fn an_address_at_which_no_http_server_listens_is_named_at_once() {
    let sshd = Sshd::start().await;
    let began = std::time::Instant::now();
    let output = sshjobs(&sshd)
        .args([
            "jobs",
            "--server",
            &format!("http://127.0.0.1:{}", sshd.port()),
        ])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(255));
    // Its sshd may hang up before its answer is read.
    assert!(
        text(&output.stderr).contains("check --server"),
        "{output:?}"
    );
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "it is not tried again"
    );
}

#[tokio::test]
async fn a_signal_of_another_process_that_ends_a_run_is_a_success() {
    let sshd = Sshd::start().await;
    let mut running = sshjobs(&sshd)
        .args(["run", HOST, "--", "sleep 100; sleep 200"])
        .spawn()
        .unwrap();
    let jobs = || text(&sshjobs(&sshd).arg("jobs").output().unwrap().stdout);
    eventually("it runs", async || jobs().contains("running  ")).await;

    // The process that owns the job ends with it, perhaps before it has answered.
    let signalled = sshjobs(&sshd).args(["signal", "last"]).output().unwrap();

    assert_eq!(signalled.status.code(), Some(0), "{signalled:?}");
    let told = text(&signalled.stderr);
    assert!(told.contains("no process of the job is left"), "{told}");
    assert_eq!(exit_of(&mut running).await, Some(143));
}

#[tokio::test]
async fn bytes_pass_unchanged_in_both_directions() {
    let sshd = Sshd::start().await;
    let bytes: Vec<u8> = (0..3_000_000u32)
        .map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3])
        .collect();
    let mut child = sshjobs(&sshd)
        .args(["run", HOST, "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent).unwrap());
    let mut received = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut received).unwrap();
    writer.join().unwrap();
    assert!(received == bytes, "{} bytes came back", received.len());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[tokio::test]
async fn output_is_live() {
    let sshd = Sshd::start().await;
    let mut child = sshjobs(&sshd)
        .args(["run", HOST, "--", "echo first; read line; echo got $line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "first\n");
    child.stdin.take().unwrap().write_all(b"it\n").unwrap();
    line.clear();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "got it\n");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[tokio::test]
async fn ctrl_c_interrupts_the_remote_tree() {
    let sshd = Sshd::start().await;
    let mut child = sshjobs(&sshd)
        .args(["run", HOST, "--", "echo $$; sleep 1000; echo not reached"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut pid = String::new();
    stdout.read_line(&mut pid).unwrap();
    interrupt(&child);
    assert_eq!(exit_of(&mut child).await, Some(130));
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
}

#[tokio::test]
async fn a_reader_that_goes_away_ends_the_command() {
    let sshd = Sshd::start().await;
    let mut child = sshjobs(&sshd)
        .args(["run", HOST, "--", "yes"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 100];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(141));
}

#[tokio::test]
async fn connection_trouble_has_a_code_of_its_own_and_a_hint() {
    let sshd = Sshd::start().await;
    sshd.write_known_hosts("");
    let output = run(&sshd, "true");
    assert_eq!(output.status.code(), Some(255));
    let stderr = text(&output.stderr);
    assert!(
        stderr.starts_with("sshjobs: host_key_unknown: ") && stderr.contains("hint: "),
        "{stderr}"
    );
    assert!(!stderr.contains('\x1b'), "no colours off a terminal");
}

#[tokio::test]
async fn a_variable_is_passed_on_by_name() {
    let sshd = Sshd::start().await;
    let args = [
        "run",
        HOST,
        "--env",
        "GREETING",
        "--cwd",
        "/tmp",
        "--",
        "echo $GREETING from $PWD",
    ];
    let output = sshjobs(&sshd).env("GREETING", "it's me").args(args).output().unwrap();
    assert_eq!(text(&output.stdout), "it's me from /tmp\n");
    let output = sshjobs(&sshd).env_remove("GREETING").args(args).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

#[tokio::test]
async fn a_time_limit_ends_with_124() {
    let sshd = Sshd::start().await;
    let output = sshjobs(&sshd)
        .args(["run", HOST, "--timeout", "1", "--", "sleep 1000"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(124));
}

#[tokio::test]
async fn hosts_lists_and_tries() {
    let sshd = Sshd::start().await;
    let output = sshjobs(&sshd).arg("hosts").output().unwrap();
    assert!(text(&output.stdout).starts_with("web1  "), "{output:?}");
    let output = sshjobs(&sshd).args(["hosts", HOST, "--json"]).output().unwrap();
    let hosts: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&hosts[0]["connected"], output.status.code()),
        (&true.into(), Some(0))
    );
    sshd.write_known_hosts("");
    let output = sshjobs(&sshd).args(["hosts", HOST]).output().unwrap();
    assert_eq!(output.status.code(), Some(255));
    assert!(
        text(&output.stdout).contains("host_key_unknown"),
        "{output:?}"
    );
}

#[test]
fn a_misspelt_key_in_the_configuration_is_named_with_file_line_and_the_nearest_key() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    std::fs::write(&file, "[limits]\nmax_job = 3\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_sshjobs"))
        .arg("--config")
        .arg(&file)
        .arg("hosts")
        .output()
        .unwrap();
    let expected = format!(
        "{}:2: unknown key \"max_job\"; did you mean \"max_jobs\"?",
        file.display()
    );
    assert!(text(&output.stderr).contains(&expected), "{output:?}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_demo_runs_a_real_job_and_follows_it() {
    let output = Command::new(env!("CARGO_BIN_EXE_sshjobs")).arg("demo").output().unwrap();
    let stdout = text(&output.stdout);
    assert!(
        stdout.contains("line   6 | all done, 4 steps") && stdout.contains("exited with status 0"),
        "{stdout}"
    );
    assert_eq!(
        text(&output.stderr),
        "",
        "a demo that succeeds has no warnings"
    );
    assert_eq!(output.status.code(), Some(0));
    let args = ["demo", "--", "echo mine; exit 7"];
    let output = Command::new(env!("CARGO_BIN_EXE_sshjobs")).args(args).output().unwrap();
    assert!(
        text(&output.stdout).contains("| mine") && output.status.code() == Some(7),
        "{output:?}"
    );
}

fn interrupt(child: &std::process::Child) {
    let process = nix::unistd::Pid::from_raw(child.id().cast_signed());
    nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGINT).unwrap();
}

#[tokio::test]
async fn a_stdin_without_a_writer_does_not_hold_the_program() {
    let sshd = Sshd::start().await;
    let mut child = sshjobs(&sshd)
        .args(["run", HOST, "exit", "5"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(exit_of(&mut child).await, Some(5));
}

#[tokio::test]
async fn a_stdout_without_a_reader_does_not_hold_ctrl_c() {
    let sshd = Sshd::start().await;
    let mut child = sshjobs(&sshd)
        .args(["run", HOST, "--", "yes"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 100];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    // Two at once may arrive as one, so an impatient person is played: at it until it ends.
    let shared = std::cell::RefCell::new(&mut child);
    eventually("it ends", async || {
        interrupt(&shared.borrow());
        shared.borrow_mut().try_wait().unwrap().is_some()
    })
    .await;
    assert_eq!(exit_of(&mut child).await, Some(130));
}

#[tokio::test]
async fn a_terminal_is_there_when_asked_for() {
    let sshd = Sshd::start().await;
    let output = sshjobs(&sshd)
        .args([
            "run",
            "--pty",
            HOST,
            "--",
            "tty -s && echo yes; stty size; echo err >&2",
        ])
        .output()
        .unwrap();
    assert_eq!(
        (text(&output.stdout).as_str(), text(&output.stderr).as_str()),
        ("yes\r\n24 80\r\nerr\r\n", "")
    );
    // -t wants one here as well.
    let output = sshjobs(&sshd)
        .args(["run", "-t", HOST, "--", "tty -s || echo no"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout), "no\n");
    assert!(
        text(&output.stderr).contains("stdin is not a terminal"),
        "{}",
        text(&output.stderr)
    );
}

#[tokio::test]
async fn timestamps_and_streams_are_chosen() {
    let sshd = Sshd::start().await;
    let output = sshjobs(&sshd)
        .args([
            "run",
            "-n",
            "--timestamps",
            "--stream",
            "stdout",
            HOST,
            "--",
            "echo a; echo b >&2; printf c",
        ])
        .output()
        .unwrap();
    let stamped =
        regex::Regex::new(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) a\n\d{4}-\S+Z c$").unwrap();
    assert!(
        stamped.is_match(&text(&output.stdout)),
        "{:?}",
        text(&output.stdout)
    );
    assert_eq!(text(&output.stderr), "");
    let output = sshjobs(&sshd)
        .args([
            "run",
            "-n",
            "--stream",
            "stderr",
            HOST,
            "--",
            "echo a; echo b >&2",
        ])
        .output()
        .unwrap();
    assert_eq!(
        (text(&output.stdout).as_str(), text(&output.stderr).as_str()),
        ("", "b\n")
    );
}

/// Runs `sshjobs ARGS` on a terminal of its own, types `keys` once it shows `cue`, and returns the
/// text of the terminal.
fn on_a_terminal(sshd: &Sshd, args: &str, cue: &str, keys: &[u8]) -> String {
    let program = env!("CARGO_BIN_EXE_sshjobs");
    let command = format!(
        "stty cols 90 rows 30; {program} --ssh-config {} {args}; stty -a",
        sshd.ssh_config().display()
    );
    let mut child = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .env("XDG_CONFIG_HOME", sshd.path("no-config"))
        .env("XDG_STATE_HOME", sshd.path("state"))
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script(1), which is part of every Linux system's base");
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    // The output comes through a channel, so that waiting for it can have a time limit.
    let (sender, pieces) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = stdout.read(&mut buffer) {
            sender.send(buffer[..length].to_vec()).ok();
        }
    });
    let mut shown = Vec::new();
    while !text(&shown).contains(cue) {
        let piece = pieces.recv_timeout(Duration::from_secs(20));
        shown.extend(piece.unwrap_or_else(|_| panic!("{cue:?} never came: {}", text(&shown))));
    }
    stdin.write_all(keys).unwrap();
    stdin.flush().unwrap();
    loop {
        match pieces.recv_timeout(Duration::from_secs(20)) {
            Ok(piece) => shown.extend(piece),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                child.kill().ok();
                panic!("it did not end: {}", text(&shown));
            }
        }
    }
    child.wait().unwrap();
    text(&shown)
}

#[tokio::test]
async fn keys_go_through_to_a_terminal_and_the_own_one_is_given_back() {
    let sshd = Sshd::start().await;
    let command = r#"run -t web1 -- 'stty size; echo $TERM; trap "echo caught; c=1" INT; echo ready; until [ "$c" ]; do sleep 0.05; done; echo bye'"#;
    let shown = on_a_terminal(&sshd, command, "ready", b"\x03");
    assert!(shown.contains("30 90\r\nxterm\r\nready\r\n"), "{shown:?}");
    assert!(shown.contains("^Ccaught\r\nbye\r\n"), "{shown:?}");
    let after = shown.split("bye").nth(1).unwrap();
    assert!(
        after.contains("isig icanon") && after.contains(" echo "),
        "{after:?}"
    );
}

#[tokio::test]
async fn tilde_dot_is_the_way_out() {
    let sshd = Sshd::start().await;
    let shown = on_a_terminal(
        &sshd,
        "run -t web1 -- 'trap \"\" INT; echo ready; sleep 1000'",
        "ready",
        b"\r~.",
    );
    assert!(shown.contains(" icanon"), "{shown:?}");
}

#[tokio::test]
async fn hostile_bytes_do_not_reach_the_terminal() {
    let sshd = Sshd::start().await;
    let bytes = r"\033]52;c;aGk=\007\033]0;title\007\033[6n\033[2J\033]8;;http://x\033\\link\033[31mred\033P+q\n\342\200\256bidi\n";
    for option in ["-n", "-n --pty"] {
        let shown = on_a_terminal(
            &sshd,
            &format!("run {option} web1 -- \"printf '{bytes}'; echo end\""),
            "end",
            b"",
        );
        for hostile in ["\x1b]", "\x1b[6n", "\x1bP", "\u{202e}"] {
            assert!(
                !shown.contains(hostile),
                "{option}: {hostile:?} in {shown:?}"
            );
        }
        assert_eq!(
            shown.contains("\x1b[2J"),
            option.contains("pty"),
            "{option}: {shown:?}"
        );
        assert!(
            shown.contains("link\x1b[31mred") && shown.contains("bidi"),
            "{option}: {shown:?}"
        );
    }
    let shown = on_a_terminal(
        &sshd,
        &format!("run -n --raw web1 -- \"printf '{bytes}'; echo end\""),
        "end",
        b"",
    );
    assert!(
        shown.contains("\x1b]52;c;aGk=\x07"),
        "raw is raw: {shown:?}"
    );
}

/// The SHA-256 fingerprint of one of the server's keys, as printed by ssh-keygen.
fn fingerprint(sshd: &Sshd, key: &str) -> String {
    let output = Command::new("ssh-keygen")
        .arg("-lf")
        .arg(sshd.path(&format!("{key}.pub")))
        .output()
        .unwrap();
    text(&output.stdout).split(' ').nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn trust_writes_the_key_that_was_named_and_no_other() {
    let sshd = Sshd::start().await;
    // A file that does not end with a line end, and a directory that is not there yet.
    sshd.write_known_hosts(
        "other.example.org ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl",
    );
    let trust = |fingerprint: &str| {
        sshjobs(&sshd)
            .args(["trust", HOST, "--fingerprint", fingerprint])
            .output()
            .unwrap()
    };
    assert_eq!(run(&sshd, "true").status.code(), Some(255));
    let wrong = trust(&fingerprint(&sshd, "other"));
    assert_eq!(wrong.status.code(), Some(255));
    assert!(
        text(&wrong.stderr).contains("another key than expected"),
        "{}",
        text(&wrong.stderr)
    );
    assert_eq!(
        run(&sshd, "true").status.code(),
        Some(255),
        "nothing may have been written"
    );

    let right = trust(&fingerprint(&sshd, "host"));
    assert_eq!(right.status.code(), Some(0), "{}", text(&right.stderr));
    let shown = text(&right.stdout);
    let art = Command::new("ssh-keygen")
        .arg("-lvf")
        .arg(sshd.path("host.pub"))
        .output()
        .unwrap();
    let picture: Vec<String> =
        text(&art.stdout).lines().skip(2).take(9).map(str::to_owned).collect();
    assert!(
        shown.contains(&picture.join("\n")),
        "{shown}\nis not\n{}",
        text(&art.stdout)
    );
    assert_eq!(run(&sshd, "echo in").stdout, b"in\n");
    // ssh itself finds it there, and the earlier content is complete.
    let file = sshd.path("known_hosts");
    let name = format!("[127.0.0.1]:{}", sshd.port());
    let found = Command::new("ssh-keygen")
        .args(["-F", &name, "-f"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(
        found.status.success(),
        "{}",
        std::fs::read_to_string(&file).unwrap()
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 2);
    // Once more changes nothing.
    assert_eq!(trust(&fingerprint(&sshd, "host")).status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 2);
    assert!(
        !sshd.log().contains("Failed"),
        "looking at a key must not look like a failed login"
    );
}

#[tokio::test]
async fn trust_asks_a_person_and_nobody_else() {
    let sshd = Sshd::start().await;
    sshd.write_known_hosts("");
    let nobody = sshjobs(&sshd).args(["trust", HOST]).output().unwrap();
    assert_eq!(nobody.status.code(), Some(255));
    assert!(
        text(&nobody.stderr).contains("--fingerprint"),
        "{}",
        text(&nobody.stderr)
    );
    for (answer, written) in [("no\n", false), ("y\nno\n", false), ("y\nyes\n", true)] {
        on_a_terminal(&sshd, "trust web1", "type yes", answer.as_bytes());
        assert_eq!(
            std::fs::read_to_string(sshd.path("known_hosts")).unwrap().lines().count() == 1,
            written,
            "{answer}"
        );
    }
}

#[tokio::test]
async fn trust_does_not_touch_what_known_hosts_speaks_against() {
    let sshd = Sshd::start().await;
    sshd.trust("other");
    let before = std::fs::read_to_string(sshd.path("known_hosts")).unwrap();
    let changed = sshjobs(&sshd)
        .args(["trust", HOST, "--fingerprint", &fingerprint(&sshd, "host")])
        .output()
        .unwrap();
    assert_eq!(changed.status.code(), Some(255));
    assert!(
        text(&changed.stderr).contains("host_key_changed"),
        "{}",
        text(&changed.stderr)
    );
    assert_eq!(
        std::fs::read_to_string(sshd.path("known_hosts")).unwrap(),
        before
    );
}

#[tokio::test]
async fn trust_does_not_call_a_key_the_expected_one_because_it_is_listed() {
    let sshd = Sshd::start().await;
    let trust = |fingerprint: &str| {
        sshjobs(&sshd)
            .args(["trust", HOST, "--fingerprint", fingerprint])
            .output()
            .unwrap()
            .status
            .code()
    };
    assert_eq!(
        trust("SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU"),
        Some(255)
    );
    assert_eq!(trust("MD5:aa"), Some(2));
}

#[tokio::test]
async fn without_an_ssh_program_what_is_understood_works_and_the_rest_is_refused() {
    let sshd = Sshd::start().await;
    let without_ssh = |command: &str| {
        sshjobs(&sshd)
            .args(["run", HOST, "--", command])
            .env("PATH", sshd.path("no-programs"))
            .output()
            .unwrap()
    };
    let output = without_ssh("echo here");
    assert_eq!(text(&output.stdout), "here\n", "{}", text(&output.stderr));
    sshd.append("Match exec true\n");
    let output = without_ssh("echo here");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(255));
    assert!(
        said.contains("unsupported") && said.contains("Match is not understood"),
        "{said}"
    );
}

#[tokio::test]
async fn a_passphrase_is_asked_for_at_the_terminal_and_not_shown() {
    let sshd = Sshd::start().await;
    let key = sshd.path("id").display().to_string();
    crate::support::ssh_keygen(&[
        "-p",
        "-a",
        "2",
        "-P",
        "",
        "-N",
        "canary-of-the-test",
        "-f",
        &key,
    ]);
    let command = format!(
        "{} --ssh-config {} run {HOST} -- 'echo he''re'",
        env!("CARGO_BIN_EXE_sshjobs"),
        sshd.ssh_config().display()
    );
    let mut script = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .env("XDG_CONFIG_HOME", sshd.path("no-config"))
        .env("XDG_STATE_HOME", sshd.path("state"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut keys, mut screen) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
    let mut seen = Vec::new();
    let mut piece = [0; 512];
    while !text(&seen).contains("/id: ") {
        let count = screen.read(&mut piece).unwrap();
        assert!(count > 0, "{:?}", text(&seen));
        seen.extend_from_slice(&piece[..count]);
    }
    keys.write_all(b"canary-of-the-test\r").unwrap();
    while !text(&seen).contains("here") {
        let count = screen.read(&mut piece).unwrap();
        assert!(count > 0, "{:?}", text(&seen));
        seen.extend_from_slice(&piece[..count]);
    }
    drop(keys);
    script.wait().unwrap();
    assert!(!text(&seen).contains("canary"), "{:?}", text(&seen));
}

/// Runs the program and returns stdout, stderr and the exit code.
fn told(command: &mut Command) -> (String, String, Option<i32>) {
    let output = command.output().unwrap();
    (
        text(&output.stdout),
        text(&output.stderr),
        output.status.code(),
    )
}

#[tokio::test]
async fn a_pipe_that_is_slow_loses_nothing() {
    let sshd = Sshd::start().await;
    let mut child = sshjobs(&sshd)
        .args(["run", HOST, "--", "seq 6000000; echo err >&2; exit 3"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    // No reader for longer than an exited job's output is drained.
    std::thread::sleep(Duration::from_secs(4));
    let (mut expected, mut line) = (0u32, String::new());
    while stdout.read_line(&mut line).unwrap() > 0 {
        expected += 1;
        assert_eq!(line.trim_end().parse(), Ok(expected));
        line.clear();
        if expected == 3_000_000 {
            std::thread::sleep(Duration::from_secs(4));
        }
    }
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(
        (expected, stderr.as_str(), child.wait().unwrap().code()),
        (6_000_000, "err\n", Some(3))
    );
}

#[tokio::test]
async fn ctrl_c_ends_a_command_whose_output_is_not_read() {
    let sshd = Sshd::start().await;
    let mut child = sshjobs(&sshd)
        .args(["run", HOST, "--", "exec yes"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 1 << 16];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    interrupt(&child);
    // It reads on after Ctrl-C, as a pager does.
    let mut rest = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut rest).unwrap();
    assert_eq!(exit_of(&mut child).await, Some(130));
    assert!(rest.chunks(2).all(|line| line == b"y\n") || rest.len() % 2 == 1);
}

#[tokio::test]
async fn ctrl_c_ends_what_the_command_left_in_the_background() {
    let sshd = Sshd::start().await;
    let (one, two) = (
        format!("300.{}", sshd.port()),
        format!("301.{}", sshd.port()),
    );
    // As bash does with background children of commands that are not interactive.
    let command = format!("(trap '' INT; exec sleep {one}) & echo up; sleep {two}");
    let mut child = sshjobs(&sshd)
        .args(["run", HOST, "--", &command])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    interrupt(&child);
    assert_eq!(exit_of(&mut child).await, Some(130));
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(
        stderr.contains("ended processes that the command had left running in the background"),
        "{stderr:?}"
    );
    let left = Command::new("pgrep")
        .args(["-fx", &format!("sleep ({one}|{two})")])
        .output()
        .unwrap();
    assert_eq!(text(&left.stdout), "");
}

#[tokio::test]
async fn a_summary_tells_a_commands_255_from_connection_trouble() {
    let sshd = Sshd::start().await;
    let summary = |stdout: &str| -> serde_json::Value {
        serde_json::from_str(stdout.trim_end().lines().last().unwrap()).unwrap()
    };
    let (stdout, _, code) =
        told(sshjobs(&sshd).args(["run", "--json", HOST, "--", "echo out; exit 255"]));
    let own = summary(&stdout);
    assert!(stdout.starts_with("out\n") && code == Some(255), "{stdout}");
    assert_eq!(
        (&own["state"], &own["exit_status"]),
        (&"exited".into(), &255.into())
    );
    assert_eq!(
        (&own["total_bytes"], own["ended_at"].is_u64()),
        (&4.into(), true)
    );
    sshd.write_known_hosts("");
    let (stdout, _, code) = told(sshjobs(&sshd).args(["run", "--json", HOST, "--", "true"]));
    let refused = summary(&stdout);
    assert_eq!(
        (code, &refused["error"]["code"]),
        (Some(255), &"host_key_unknown".into())
    );
}

#[tokio::test]
async fn options_mean_what_they_mean_to_ssh() {
    let sshd = Sshd::start().await;
    let (port, key) = (
        sshd.port().to_string(),
        sshd.path("id").display().to_string(),
    );
    let known = format!("UserKnownHostsFile={}", sshd.path("known_hosts").display());
    let user = text(&Command::new("id").arg("-un").output().unwrap().stdout).trim().to_owned();
    let nothing = sshd.path("empty");
    std::fs::write(&nothing, "").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sshjobs"));
    command
        .arg("--ssh-config")
        .arg(nothing)
        .env("XDG_CONFIG_HOME", sshd.path("no-config"))
        .env("XDG_STATE_HOME", sshd.path("state"))
        .env_remove("SSH_AUTH_SOCK");
    command.args([
        "run",
        "-p",
        &port,
        "-l",
        &user,
        "-i",
        &key,
        "-o",
        &known,
        "127.0.0.1",
        "--",
        "echo $V",
    ]);
    command.args([] as [&str; 0]).stdin(Stdio::null());
    let (stdout, stderr, code) = told(&mut command);
    assert_eq!((stdout.as_str(), code), ("\n", Some(0)), "{stderr}");
    let mut sets = sshjobs(&sshd);
    sets.args([
        "run",
        "-e",
        "V=a b=c",
        "--timeout",
        "1m30s",
        HOST,
        "--",
        "echo \"$V\"",
    ]);
    assert_eq!(told(&mut sets).0, "a b=c\n");
}

#[tokio::test]
async fn likely_mistakes_are_reported_with_the_correct_form() {
    let sshd = Sshd::start().await;
    let (_, stderr, code) = told(sshjobs(&sshd).args(["run", HOST, "web2", "--", "uptime"]));
    assert!(
        stderr.contains("sshjobs run web1,web2 -- uptime") && code == Some(2),
        "{stderr}"
    );
    let (_, stderr, code) = told(sshjobs(&sshd).args(["run", "wbe1", "--", "true"]));
    assert!(
        stderr.contains("did you mean \"web1\"") && code == Some(255),
        "{stderr}"
    );
    let (_, stderr, code) = told(sshjobs(&sshd).args(["hosts", "--tag", "nope"]));
    assert!(
        stderr.contains("none of the 1 hosts has the tag \"nope\"") && code == Some(255),
        "{stderr}"
    );
    let (_, stderr, code) =
        told(sshjobs(&sshd).args(["run", "--timeout", "soon", HOST, "--", "true"]));
    assert!(stderr.contains("1m30s") && code == Some(2), "{stderr}");
    let (_, stderr, code) =
        told(sshjobs(&sshd).args(["run", "--timeout", "0.5", HOST, "--", "sleep 1000"]));
    assert!(
        stderr.contains("time limit of 500ms") && code == Some(124),
        "{stderr}"
    );
    sshd.append("Nonsense yes\n");
    let (_, stderr, code) = told(sshjobs(&sshd).arg("hosts"));
    assert!(
        stderr.contains("line 10") && stderr.contains("onsense") && code == Some(255),
        "{stderr}"
    );
}

#[tokio::test]
async fn output_that_cannot_be_written_has_a_code_of_its_own() {
    let sshd = Sshd::start().await;
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let file = format!("{HOST}:{}", sshd.ssh_config().display());
    for arguments in [
        &["run", HOST, "--", "seq 100000"][..],
        &["wait", "--json", "last"],
        &["hosts"],
        &["get", &file, "-"],
    ] {
        let output = sshjobs(&sshd).args(arguments).stdout(full()).output().unwrap();
        let stderr = text(&output.stderr);
        assert!(
            output.status.code() == Some(74) && stderr.contains("can't write the output"),
            "{stderr}"
        );
    }
}

#[tokio::test]
async fn the_home_directory_is_that_of_the_password_database() {
    let sshd = Sshd::start().await;
    let (stdout, stderr, code) = told(sshjobs(&sshd).env("HOME", sshd.path("no-home")).args([
        "run",
        HOST,
        "--",
        "echo here",
    ]));
    assert_eq!((stdout.as_str(), code), ("here\n", Some(0)), "{stderr}");
}

#[tokio::test]
async fn a_time_limit_ends_a_command_whose_output_is_not_read() {
    let sshd = Sshd::start().await;
    let command = format!("seq {}0000", sshd.port());
    let mut child = sshjobs(&sshd)
        .args(["run", "--timeout", "2", HOST, "--", &command])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let is_left =
        || Command::new("pgrep").args(["-fx", &command]).output().unwrap().status.success();
    eventually("it runs", async || is_left()).await;
    eventually("it is ended, whatever our stdout does", async || !is_left()).await;
    // A later reader still gets everything printed by then.
    let mut stdout = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
    let printed = text(&stdout);
    // The last line may be cut off.
    let whole = printed.rsplit_once('\n').unwrap().0;
    let is_next = |(line, number): (&str, u32)| line.parse() == Ok(number);
    assert!(whole.lines().count() > 10_000 && whole.lines().zip(1..).all(is_next));
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(exit_of(&mut child).await, Some(124), "{stderr}");
    assert!(
        stderr.contains("time limit of 2s and was ended") && !stderr.contains("lost"),
        "{stderr}"
    );
}

#[tokio::test]
async fn a_server_gets_signs_of_life_while_the_output_is_not_read() {
    let sshd = Sshd::with("ClientAliveInterval 1\nClientAliveCountMax 2").await;
    let usual = std::fs::read_to_string(sshd.ssh_config())
        .unwrap()
        .replace("ServerAliveInterval 1", "");
    std::fs::write(sshd.ssh_config(), usual).unwrap();
    let mut child = sshjobs(&sshd)
        .args(["run", HOST, "--", "seq 3000000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Longer than the server waits for an answer.
    std::thread::sleep(Duration::from_secs(8));
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().count();
    assert_eq!((lines, exit_of(&mut child).await), (3_000_000, Some(0)));
}

/// A finished job is never signalled: processes that it left in the background keep running, and
/// the command that ran it does not mention them.
#[tokio::test]
async fn a_background_process_outlives_the_run_that_started_it() {
    const ROUNDS: usize = 20;

    let sshd = Sshd::start().await;
    sshd.alias(["web2"]);
    // The port makes the argument unique among tests that run at the same time.
    let seconds = format!("300.{}", sshd.port());

    for round in 0..ROUNDS {
        let target = if round % 2 == 0 { "web1" } else { "web1,web2" };
        let command = format!("sleep {seconds} >/dev/null 2>&1 </dev/null & echo $!");

        let output = sshjobs(&sshd).args(["run", target, "--", &command]).output().unwrap();

        assert_eq!(
            output.status.code(),
            Some(0),
            "round {round}: {}",
            text(&output.stderr)
        );
        assert!(
            !text(&output.stderr).contains("WARN"),
            "round {round}: {}",
            text(&output.stderr)
        );
        if target == "web1" {
            assert_eq!(text(&output.stderr), "", "round {round}");
        }
        for pid in pids_in(&text(&output.stdout)) {
            assert!(
                kill(pid, None).is_ok(),
                "round {round}: the background process {pid} was killed"
            );
            kill(pid, Signal::SIGKILL).unwrap();
        }
    }
}

/// The number at the end of each line: a fleet's lines begin with the host's name.
fn pids_in(output: &str) -> Vec<Pid> {
    let last_words = output.lines().filter_map(|line| line.split_whitespace().last());
    last_words.filter_map(|word| word.parse().ok().map(Pid::from_raw)).collect()
}

#[test]
fn the_version_is_printed_with_its_commit() {
    let run = |word: &str| {
        text(&Command::new(env!("CARGO_BIN_EXE_sshjobs")).arg(word).output().unwrap().stdout)
    };
    let number = concat!("sshjobs ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(run("-V"), number);
    let long = run("--version");
    assert!(
        long.starts_with(number) && long.contains("commit: "),
        "{long}"
    );
}

#[tokio::test]
async fn a_command_may_contain_a_second_pair_of_dashes() {
    let sshd = Sshd::start().await;
    for before in [&[][..], &["--cwd", "/tmp"]] {
        let words = [&["run", HOST], before, &["--", "echo", "a", "--", "b"]].concat();
        let output = sshjobs(&sshd).args(words).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "a -- b\n");
    }
    let mistaken = sshjobs(&sshd).args(["run", HOST, "db1", "--", "uptime"]).output().unwrap();
    assert_eq!(mistaken.status.code(), Some(2));
}

#[tokio::test]
async fn a_user_id_without_a_name_needs_no_ssh_program() {
    let sshd = Sshd::start().await;
    let bin = sshd.path("bin");
    std::fs::create_dir(&bin).unwrap();
    let fake = |words: &str| {
        let ssh = bin.join("ssh");
        std::fs::write(
            &ssh,
            format!("#!/bin/sh\nprintf '{words}\\r\\n' >&2; exit 255\n"),
        )
        .unwrap();
        std::fs::set_permissions(&ssh, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
    };
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let run = || {
        let run = ["run", HOST, "--", "echo it works"];
        sshjobs(&sshd).args(run).env("PATH", &path).output().unwrap()
    };

    fake("No user exists for uid 123456");
    let ran = run();
    assert_eq!(text(&ran.stdout), "it works\n", "{}", text(&ran.stderr));

    fake("Bad owner or permissions on /home/u/.ssh/config");
    let refused = text(&run().stderr);
    assert!(refused.contains("chmod 600"), "{refused}");
}

#[tokio::test]
async fn what_a_command_prints_after_term_is_shown() {
    let sshd = Sshd::start().await;
    let clean_up = "trap 'echo cleaned up; exit 3' TERM; echo ready; sleep 1000 & wait";
    let mut child = sshjobs(&sshd)
        .args(["run", "-n", HOST, "--", clean_up])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut shown = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    shown.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
    let mut rest = String::new();
    shown.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "cleaned up\n");
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
}

//! The first five minutes: init, config, hosts add, help, and ssh's own options.

use std::process::{Command, Output, Stdio};

use crate::support::command::{sshjobs, told};
use crate::support::tmux::Tmux;
use crate::support::{HOST, Sshd};

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The program with a home directory of its own and nothing else.
fn at_home(home: &std::path::Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sshjobs"))
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", home)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn init_writes_a_configuration_that_sets_nothing_and_offers_known_hosts() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".ssh")).unwrap();
    std::fs::write(
        home.path().join(".ssh/known_hosts"),
        "web1 ssh-ed25519 AAAA\n[db1.example.com]:2222 ssh-ed25519 AAAA\n",
    )
    .unwrap();

    let first = at_home(home.path(), &["init"]);
    assert!(first.status.success(), "{}", stderr(&first));
    assert!(
        stderr(&first).contains("db1.example.com port 2222"),
        "{}",
        stderr(&first)
    );
    let file = home.path().join(".config/sshjobs/config.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(
        text.lines().all(|line| line.is_empty() || line.starts_with('#')),
        "{text}"
    );

    told(&at_home(home.path(), &["init", "--all-hosts"]));
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("[hosts.\"db1.example.com\"]\naddress = \"db1.example.com\"\nport = 2222")
    );
    assert!(told(&at_home(home.path(), &["hosts"])).contains("web1"));
    let again = at_home(home.path(), &["init", "--all-hosts"]);
    assert!(again.status.success());
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        text,
        "nothing is added twice"
    );
}

#[test]
fn init_offers_no_host_that_ssh_config_has_under_its_address() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".ssh")).unwrap();
    let known =
        "[db1.example.com]:2222 ssh-ed25519 AAAA\n[db1.example.com]:2223 ssh-ed25519 AAAA\n";
    std::fs::write(home.path().join(".ssh/known_hosts"), known).unwrap();
    let config = home.path().join("config");
    std::fs::write(
        &config,
        "Host db\n  HostName db1.example.com\n  Port 2222\n",
    )
    .unwrap();

    let told = at_home(
        home.path(),
        &["--ssh-config", &config.display().to_string(), "init"],
    );

    let told = stderr(&told);
    assert!(
        !told.contains("port 2222") && told.contains("port 2223"),
        "{told}"
    );
}

#[test]
fn a_host_is_added_and_found_and_mistakes_change_nothing() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("own.toml");
    std::fs::write(&file, "# mine\n[limits]\nmax_jobs = 5").unwrap();
    let path = file.display().to_string();
    let add = |words: &[&str]| {
        at_home(
            home.path(),
            &[&["--config", &path, "hosts", "add"], words].concat(),
        )
    };

    told(&add(&[
        "web1",
        "deploy@10.0.0.7:2222",
        "--tag",
        "prod",
        "--tag",
        "web",
    ]));
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(
        text,
        "# mine\n[limits]\nmax_jobs = 5\n\n[hosts.web1]\naddress = \"10.0.0.7\"\nport = 2222\nuser = \"deploy\"\ntags = [\"prod\", \"web\"]\n"
    );
    let listed = told(&at_home(
        home.path(),
        &["--config", &path, "hosts", "--tag", "prod"],
    ));
    assert!(listed.contains("deploy@10.0.0.7 port 2222"), "{listed}");

    for words in [
        &["web1", "10.0.0.8"][..],
        &["web2", "-oProxyCommand=touch"],
        &["web2", "user@"],
        &["web2"],
    ] {
        assert_eq!(add(words).status.code(), Some(2), "{words:?}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);

    std::fs::write(&file, "max_job = 5\n").unwrap();
    let broken = add(&["web2", "10.0.0.8"]);
    assert_eq!(broken.status.code(), Some(2));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "max_job = 5\n");
}

#[test]
fn config_tells_the_source_of_each_value() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("own.toml");
    std::fs::write(
        &file,
        "[limits]\nmax_jobs = 5\n[hosts.db1]\npassword = { env = \"DB1_PASSWORD\" }\n",
    )
    .unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_sshjobs"))
        .args(["--state-dir", "/tmp/from-option", "config"])
        .env_clear()
        .env("HOME", home.path())
        .env("SSHJOBS_CONFIG", &file)
        .env("DB1_PASSWORD", "hunter2")
        .output()
        .unwrap();
    let shown = told(&output);
    let line = |key: &str| {
        let line = shown.lines().find(|line| line.starts_with(key));
        line.unwrap_or_else(|| panic!("{key} is not in {shown}")).to_owned()
    };
    assert!(line("max_jobs ").ends_with("own.toml:2"), "{shown}");
    assert!(line("max_finished ").ends_with("# default"));
    assert!(
        line("state_dir ").contains("/tmp/from-option")
            && line("state_dir ").ends_with("--state-dir")
    );
    assert!(line("password ").ends_with("own.toml:4") && !shown.contains("hunter2"));

    // What it prints is a configuration, too.
    std::fs::write(&file, &shown).unwrap();
    let again = Command::new(env!("CARGO_BIN_EXE_sshjobs"))
        .arg("config")
        .env_clear()
        .env("HOME", home.path())
        .env("SSHJOBS_CONFIG", &file)
        .output()
        .unwrap();
    assert!(told(&again).contains("max_jobs = 5"));
}

#[test]
fn help_is_in_groups_and_short() {
    let help = |words: &[&str]| {
        told(&Command::new(env!("CARGO_BIN_EXE_sshjobs")).args(words).output().unwrap())
    };
    let program = help(&["--help"]);
    for group in [
        "Run commands:",
        "Follow jobs:",
        "Manage jobs:",
        "Hosts:",
        "Server:",
        "Other:",
        "Global options:",
    ] {
        assert!(
            program.contains(&format!("{group}\n")),
            "{group} in {program}"
        );
    }
    let run = help(&["run", "--help"]);
    assert!(run.lines().count() < 110);
    let position =
        |heading: &str| run.find(heading).unwrap_or_else(|| panic!("{heading} in {run}"));
    assert!(position("\nMany hosts:") < position("\nSSH options:"));
    assert!(position("\nSSH options:") < position("\nGlobal options:"));
    assert!(run.contains("both, stdout, stderr"));
    assert_eq!(run, help(&["help", "run"]));
}

#[test]
fn verbs_of_other_programs_lead_to_ours() {
    for (word, ours) in [
        ("stop", "sshjobs signal"),
        ("rm", "sshjobs forget"),
        ("ssh", "sshjobs run -t"),
        ("follow", "sshjobs tail -f"),
        ("scp", "sshjobs put"),
        ("tunnel", "sshjobs forward"),
        ("add", "sshjobs spawn"),
        ("rnu", "sshjobs run"),
        ("jbos", "sshjobs jobs"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_sshjobs")).arg(word).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{word}");
        assert!(
            stderr(&output).contains(ours),
            "{word}: {}",
            stderr(&output)
        );
    }
}

#[tokio::test]
async fn the_options_of_ssh_do_what_they_do_there() {
    let sshd = Sshd::start().await;
    // -tt forces a terminal without one here; -t alone can't.
    assert_eq!(
        told(&sshjobs(
            &sshd,
            &["run", "-tt", HOST, "--", "test -t 1 && echo yes"]
        )),
        "yes\r\n"
    );
    let without = sshjobs(&sshd, &["run", "-t", HOST, "--", "test -t 1 || echo no"]);
    assert_eq!(told(&without), "no\n");
    assert!(stderr(&without).contains("-tt"));
    let quiet = sshjobs(&sshd, &["run", "-q", "-t", HOST, "--", "true"]);
    assert_eq!(stderr(&quiet), "");
    let verbose = sshjobs(&sshd, &["run", "-v", HOST, "--", "true"]);
    assert!(stderr(&verbose).contains("INFO"), "{}", stderr(&verbose));
    let refused = sshjobs(&sshd, &["run", "-q", "nowhere.invalid", "--", "true"]);
    assert_eq!(refused.status.code(), Some(255));
    assert!(
        !stderr(&refused).is_empty(),
        "an error is told all the same"
    );
}

#[test]
fn a_completion_script_calls_the_program_by_its_name_if_the_shell_finds_it() {
    let directory = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_sshjobs");
    let script = |path: &std::path::Path| {
        let output = Command::new(program)
            .args(["completions", "bash"])
            .env_clear()
            .env("PATH", path)
            .output()
            .unwrap();
        told(&output)
    };
    assert!(script(directory.path()).contains(program));
    std::os::unix::fs::symlink(program, directory.path().join("sshjobs")).unwrap();
    assert!(
        !script(directory.path()).contains(program),
        "an upgrade may move the file"
    );
}

#[tokio::test]
async fn a_help_text_fits_a_narrow_terminal() {
    let tmux = Tmux::start(
        &format!("{} help durable", env!("CARGO_BIN_EXE_sshjobs")),
        (60, 40),
    );
    tmux.shows(&["Durable jobs", "ended with 0"]).await;
    let screen = tmux.screen();
    // A line that was wrapped twice would leave a short rest in the middle of a paragraph.
    let paragraph: Vec<&str> = screen
        .lines()
        .skip_while(|line| !line.starts_with("A durable job"))
        .take_while(|line| !line.is_empty())
        .collect();
    let (_, full) = paragraph.split_last().unwrap();
    assert!(full.iter().all(|line| line.len() > 40), "{screen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn users_and_addresses_are_written_as_for_ssh() {
    let sshd = Sshd::start().await;
    sshd.alias(["::1"]);
    let me = nix::unistd::User::from_uid(nix::unistd::getuid()).unwrap().unwrap().name;
    let port = sshd.port();
    for host in [
        "[::1]".to_owned(),
        format!("{me}@[::1]:{port}"),
        format!("ssh://{me}@[::1]:{port}"),
    ] {
        let ran = sshjobs(&sshd, &["run", &host, "--", "echo it works"]);
        assert_eq!(told(&ran), "it works\n", "{host}");
    }
    for (host, user) in [
        ("alice@corp@web1", "alice@corp"),
        (r"CORP\alice@web1", r"CORP\alice"),
        ("alice#x@web1", "alice#x"),
    ] {
        let refused = stderr(&sshjobs(&sshd, &["run", host, "--", "true"]));
        assert!(
            refused.contains(&format!("does not let {user} in")),
            "{refused}"
        );
    }
}

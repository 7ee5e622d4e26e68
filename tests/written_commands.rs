//! Commands as lists of words and as scripts: byte for byte, whichever login shell the account has.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::Sshd;
use crate::support::command::{command, sshjobs, told};
use crate::support::login_shell::sshd_with_login_shell;
use crate::support::server::{Caller, Server};

/// Words that shells change in many ways if they are not quoted, or not well.
const HOSTILE: [&str; 12] = [
    "it's",
    "a  b",
    "$HOME `id` $(id)",
    r"a\b\\c\'d",
    "!! !x",
    "two\nlines\n",
    "\ttab",
    "~",
    "*?[a]{b,c}",
    "#%^&|;<>()",
    "",
    "grün\u{3000}東",
];

/// Prints its arguments as JSON.
const PRINT: &str = "import json, sys\nprint(json.dumps(sys.argv[1:]))";

/// Prints its arguments, the hash of its own file, its stdin and the file's path.
const DESCRIBE: &str = "import hashlib, json, sys\n\
    text = open(sys.argv[0], 'rb').read()\n\
    print(json.dumps([sys.argv[1:], hashlib.sha256(text).hexdigest(), sys.stdin.read(), sys.argv[0]]))\n\
    # Ended by no line end: it's $HOME `id` !! \\ \u{1b}[1m grün";

/// Login shells of three kinds, as far as this machine has them.
fn shells() -> impl Iterator<Item = &'static str> {
    [
        "/bin/bash",
        "/bin/dash",
        "/usr/bin/tcsh",
        "/usr/bin/fish",
        "/usr/bin/ksh",
        "/bin/mksh",
    ]
    .into_iter()
    .filter(|shell| Path::new(shell).exists())
}

struct Fixture {
    _sshd: Sshd,
    _server: Server,
    caller: Caller,
}

impl Fixture {
    async fn with_shell(shell: &str) -> Self {
        let sshd = sshd_with_login_shell(shell, 0.0, "").await;
        let server = Server::start(&sshd);
        let caller = server.caller(&sshd, "agent1", &[]);
        Self {
            _sshd: sshd,
            _server: server,
            caller,
        }
    }
}

fn first_line(reply: &Value) -> Value {
    let line = reply["head"][0].as_str().unwrap_or_else(|| panic!("{reply}"));
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {reply}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn words_arrive_as_they_are_in_every_login_shell() {
    for shell in shells() {
        let fixture = Fixture::with_shell(shell).await;
        let argv = [&["python3", "-c", PRINT], &HOSTILE[..]].concat();
        for durable in [false, true, false] {
            let request = json!({"host": "web1", "argv": argv, "durable": durable});

            let reply = fixture.caller.ok("run", request);

            assert_eq!(first_line(&reply), json!(HOSTILE), "{shell} {durable}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_arrives_as_it_is_in_every_login_shell_and_leaves_no_file() {
    let hash: String = Sha256::digest(DESCRIBE).iter().map(|byte| format!("{byte:02x}")).collect();
    for shell in shells() {
        let fixture = Fixture::with_shell(shell).await;
        for durable in [false, true, false] {
            let request = json!({
                "host": "web1", "script": DESCRIBE, "interpreter": "python3 -B", "argv": HOSTILE,
                "stdin": "input\n", "env": {"A": "b"}, "durable": durable,
            });

            let reply = fixture.caller.ok("run", request);

            let [words, sha256, stdin, file] =
                <[Value; 4]>::try_from(first_line(&reply).as_array().unwrap().clone()).unwrap();
            assert_eq!(
                (words, sha256, stdin),
                (json!(HOSTILE), json!(hash), json!("input\n")),
                "{shell} {durable}"
            );
            assert!(
                !Path::new(file.as_str().unwrap()).exists(),
                "{shell} {durable}: {file}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_is_ended_leaves_no_file_and_shows_in_no_process_list() {
    let fixture = Fixture::with_shell("/bin/bash").await;
    let script = "#!/bin/sh\n: n0t-in-argv\necho \"$0\"; ps -eww -o args= | grep -c 'n0t-in-arg[v]'; sleep 100";
    for durable in [false, true] {
        let request = json!({"host": "web1", "script": script, "durable": durable, "stdin": ""});
        let job = fixture.caller.ok("spawn", request)["job_id"].clone();
        let seen = fixture.caller.ok(
            "tail",
            json!({"job_id": job, "until": "^[0-9]+$", "wait_ms": 20000}),
        );
        let lines = &seen["lines"];
        assert_eq!(lines[1], "0", "{seen}");

        let ended = fixture.caller.ok("signal", json!({"job_id": job, "signal": "TERM"}));

        assert_eq!(ended["still_running"], Value::Null, "{ended}");
        let file = lines[0].as_str().unwrap();
        assert!(!Path::new(file).exists(), "{durable}: {file}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_runs_on_a_terminal_and_may_be_as_long_as_a_mebibyte() {
    let fixture = Fixture::with_shell("/bin/bash").await;
    let on_terminal = fixture.caller.ok(
        "run",
        json!({"host": "web1", "script": "test -t 0 && echo \"on a terminal: $1\"", "argv": ["x y"], "pty": true}),
    );
    assert_eq!(
        on_terminal["head"],
        json!(["on a terminal: x y"]),
        "{on_terminal}"
    );

    let end = "\necho the end";
    let longest = format!("{}{end}", "#".repeat((1 << 20) - end.len()));
    for durable in [false, true] {
        let reply = fixture.caller.ok(
            "run",
            json!({"host": "web1", "script": longest, "durable": durable}),
        );
        assert_eq!(reply["head"], json!(["the end"]), "{durable}: {reply}");
    }
    let (status, refused) = fixture.caller.call(
        "run",
        json!({"host": "web1", "script": format!("#{longest}")}),
    );
    assert_eq!(
        (status, &refused["code"]),
        (400, &json!("invalid_argument")),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_twice_or_without_its_other_half_is_refused() {
    let fixture = Fixture::with_shell("/bin/bash").await;
    for (request, said) in [
        (
            json!({"command": "true", "argv": ["true"]}),
            "command and argv are both given",
        ),
        (
            json!({"command": "true", "script": "true"}),
            "command and script are both given",
        ),
        (
            json!({"argv": ["true"], "interpreter": "sh"}),
            "none is given",
        ),
        (json!({"argv": [""]}), "it is empty"),
        (json!({"script": ""}), "the script is empty"),
        (
            json!({"script": "true", "interpreter": " "}),
            "interpreter is empty",
        ),
        (json!({"script": "a\0b"}), "NUL"),
        (
            json!({"command": "true", "env": {"SSHJOBS_SCRIPT": "x"}}),
            "can't be set",
        ),
        (json!({"argv": []}), "command is empty"),
    ] {
        let mut request = request;
        request["host"] = json!("web1");
        let (status, refused) = fixture.caller.call("run", request.clone());
        let message = refused["message"].as_str().unwrap_or_default();
        assert!(
            status == 400 && message.contains(said),
            "{request}: {refused}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_takes_words_and_scripts() {
    let sshd = Sshd::start().await;
    let file = sshd.path("print.py");
    fs::write(&file, format!("#!/usr/bin/env python3\n{PRINT}")).unwrap();
    let file = file.display().to_string();
    let parsed = |output| serde_json::from_str::<Value>(told(&output).trim()).unwrap();

    let words = [
        &["run", "-n", "--argv", "web1", "--", "python3", "-c", PRINT],
        &HOSTILE[..],
    ]
    .concat();
    assert_eq!(parsed(sshjobs(&sshd, &words)), json!(HOSTILE));
    let script = [
        &["run", "-n", "--script", &file, "web1", "--"],
        &HOSTILE[..],
    ]
    .concat();
    assert_eq!(parsed(sshjobs(&sshd, &script)), json!(HOSTILE));
    let without = ["run", "-n", "web1", "--script", &file];
    assert_eq!(parsed(sshjobs(&sshd, &without)), json!([]));

    let input = fs::File::open(sshd.path("print.py")).unwrap();
    let arguments = [
        "run",
        "-n",
        "--script",
        "-",
        "--interpreter",
        "python3",
        "web1",
        "--",
        "a b",
    ];
    let from_stdin =
        command(&sshd, &arguments).stdin(input).stdout(Stdio::piped()).output().unwrap();
    assert_eq!(parsed(from_stdin), json!(["a b"]));
}

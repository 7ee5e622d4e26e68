//! The live page in Chromium, driven as a person would (`fixtures/clients/page.mjs`). `make test-page`
//! installs the browser and the driver, and says where they are in CLIENTS.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod support;

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use support::command::{sshjobs, told};
use support::server::{Caller, Server};
use support::{HOST, Sshd};

/// A host, a server and a caller.
struct Served {
    sshd: Sshd,
    server: Server,
    caller: Caller,
}

impl Served {
    async fn start() -> Self {
        Self::with(&[]).await
    }

    async fn with(arguments: &[&str]) -> Self {
        let sshd = Sshd::start().await;
        let server = Server::with(&sshd, arguments);
        let caller = server.caller(&sshd, "alice", &[]);
        Self {
            sshd,
            server,
            caller,
        }
    }

    /// Performs a scenario as a caller. Returns its measurements.
    fn perform_as(&self, caller: &Caller, scenario: &str, scene: &Value) -> Value {
        self.run(&["page.mjs", scenario], caller, scene)
    }

    /// Runs a script of `fixtures/clients` as a caller. Returns its output.
    fn run(&self, script: &[&str], caller: &Caller, scene: &Value) -> Value {
        let child = browser(&self.server.url, caller, script, scene).spawn().unwrap();
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script:?}: {stderr}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn perform(&self, scenario: &str, scene: Value) -> Value {
        self.perform_as(&self.caller, scenario, &scene)
    }
}

fn browser(url: &str, caller: &Caller, script: &[&str], scene: &Value) -> Command {
    let clients = std::env::var_os("CLIENTS").expect("`make test-page` sets CLIENTS");
    let clients = PathBuf::from(clients);
    let mut command = Command::new(clients.join("venv/bin/node"));
    command
        .current_dir(&clients)
        .args(script)
        .env("PAGE_URL", url)
        .env("PAGE_TOKEN", &caller.token)
        .env("SCENE", scene.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A job that asks for a secret on its terminal.
const ASKS_FOR_SECRET: &str =
    "stty -echo; printf 'Password: '; read -r secret; stty echo; test ${#secret} = 7";
/// Two lines in colour, one of them to stderr, and a question.
const COLOURED: &str = "printf '\\033[1;31mred text\\033[0m and plain\\n'; \
    printf '\\033[33mwarning:\\033[0m disk 91 %% full\\n' >&2; \
    for i in $(seq 12); do printf '\\033[32mok\\033[0m %s of 12\\n' \"$i\"; done; \
    printf 'Continue? [y/N] '; read -r answer";

#[tokio::test(flavor = "multi_thread")]
async fn a_token_becomes_a_cookie_that_scripts_cannot_read() {
    Served::start().await.perform("log_in", json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_is_dense_counted_and_filtered_and_a_fleet_has_a_table() {
    let served = Served::start().await;
    served.sshd.alias(["web2"]);
    let first = served.caller.spawn("echo some line; echo last line of the first");
    let running = served.caller.spawn("sleep 100");
    let fleet = served.caller.ok(
        "spawn",
        json!({"hosts": [HOST, "web2"], "command": "echo hello from a member"}),
    );
    let fleet = fleet["job_id"].as_str().unwrap();
    let failed = served.caller.spawn("exit 3");
    served.caller.ok("wait", json!({"job_ids": [first, fleet, failed]}));

    served.perform(
        "list",
        json!({"jobs": [first, running, fleet, failed], "running": running, "fleet": fleet}),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_follows_a_job_and_stops_when_a_person_scrolls() {
    let served = Served::start().await;
    let job = served
        .caller
        .spawn("for i in $(seq 100); do echo line $i; done; while sleep 0.05; do echo more; done");

    served.perform("follow", json!({"job": job}));
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_output_is_only_text() {
    let served = Served::start().await;
    let job = served.caller.spawn(
        "printf '<script>globalThis.attacked = 1</script>\\n<img src=x onerror=globalThis.attacked=1>\\n\
         \\033[1;31mred text\\033[0m\\n\\033]0;stolen title\\007\\342\\200\\256reversed\\n'; echo oops >&2",
    );

    served.perform("hostile", json!({"job": job}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_answers_prompts_and_secrets_are_not_shown() {
    let served = Served::start().await;
    let job = served.caller.ok(
        "spawn",
        json!({"host": HOST, "command": "printf 'Which colour? '; read -r it; echo \"you like $it\"; sleep 100"}),
    );
    let secret = served.caller.ok(
        "spawn",
        json!({"host": HOST, "command": ASKS_FOR_SECRET, "pty": true}),
    );
    let menu = "stty -icanon -echo; printf 'menu> '; dd bs=1 count=1 2>/dev/null; sleep 100";
    let menu = served.caller.ok("spawn", json!({"host": HOST, "command": menu, "pty": true}));

    served.perform(
        "answer",
        json!({"job": job["job_id"], "secret": secret["job_id"], "menu": menu["job_id"]}),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_person_is_answered_above_everything_else() {
    let served = Served::start().await;
    for question in ["your colour?", "your name?"] {
        let command = format!("printf '{question} '; read answer; echo $answer");
        served.caller.spawn(&command);
    }
    served.perform("band", json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_offered_for_a_job_that_does_not_exist() {
    Served::start().await.perform("unknown", json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_ends_and_forgets_jobs() {
    let served = Served::start().await;
    let jobs = [
        served.caller.spawn("sleep 100"),
        served.caller.spawn("sleep 100"),
    ];

    served.perform("end", json!({"jobs": jobs}));

    let left = served.caller.ok("jobs", json!({}));
    assert_eq!(left["total"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_go_to_the_screen_of_a_terminal_job() {
    let served = Served::start().await;
    let job = served.caller.ok(
        "spawn",
        json!({"host": HOST, "command": "printf '\\033[1;31mred\\033[0m ready\\n'; read -r line; echo \"got [$line]\"; sleep 100", "pty": true}),
    );

    served.perform("terminal", json!({"job": job["job_id"]}));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approver_sees_the_exact_call_and_answers() {
    let sshd = Sshd::start().await;
    let policy = sshd.path("policy.toml");
    let rules = "[[rules]]\nname = \"ask\"\ncallers = [\"agent\"]\ncommands = \"any\"\napproval = \"person\"\n\
        [[rules]]\nname = \"look\"\nverbs = [\"hosts\", \"jobs\", \"tail\", \"read\"]\n[[approvers]]\ncallers = [\"alice\"]\n";
    let audit = format!("[audit]\nfile = {:?}\n", sshd.path("audit.jsonl"));
    std::fs::write(&policy, format!("{rules}{audit}")).unwrap();
    let server = Server::with(&sshd, &["--policy", policy.to_str().unwrap()]);
    let caller = server.caller(&sshd, "alice", &[]);
    let agent = server.caller(&sshd, "agent", &[]).impatient();
    for command in ["echo first", "echo second"] {
        let (status, body) = agent.call("run", json!({"host": HOST, "command": command}));
        assert_eq!((status, &body["code"]), (409, &json!("approval_pending")));
    }

    let served = Served {
        sshd,
        server,
        caller,
    };
    served.perform("approve", json!({}));

    let first = agent.ok("run", json!({"host": HOST, "command": "echo first"}));
    assert_eq!(first["head"][0], "first");
    let (_, second) = agent.call("run", json!({"host": HOST, "command": "echo second"}));
    assert_eq!(second["code"], "approval_denied");

    // The approval and the vote are in the audit log of the job that they allow.
    let admin = served.server.caller(&served.sshd, "boss", &["--role", "admin"]);
    served.perform_as(&admin, "audit", &json!({"approved": first["job_id"]}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_compared_with_the_last_one_that_was_approved() {
    let sshd = Sshd::start().await;
    let policy = sshd.path("policy.toml");
    let rules = "[[rules]]\nname = \"ask\"\ncallers = [\"agent\"]\ncommands = \"any\"\napproval = \"person\"\n\
        [[rules]]\nname = \"look\"\nverbs = [\"hosts\", \"jobs\"]\n[[approvers]]\ncallers = [\"alice\"]\n";
    std::fs::write(&policy, rules).unwrap();
    let server = Server::with(&sshd, &["--policy", policy.to_str().unwrap()]);
    let caller = server.caller(&sshd, "alice", &[]);
    let agent = server.caller(&sshd, "agent", &[]).impatient();
    let ask = |command: &str| {
        let (status, body) = agent.call("run", json!({"host": HOST, "command": command}));
        assert_eq!(status, 409, "{body}");
        body["approval_id"].as_str().unwrap().to_owned()
    };
    let first = ask("echo restart web-1");
    caller.ok(
        &format!("approvals/{first}"),
        json!({"decision": "approve"}),
    );
    ask("echo restart web-2");

    Served {
        sshd,
        server,
        caller,
    }
    .perform("compare", json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_of_lines_fold_and_errors_are_found() {
    let served = Served::start().await;
    // Lines 1 to 10, 11 to 15, 16 to 19.
    let job = served.caller.spawn(
        "echo ::group::Install; for i in $(seq 8); do echo dep $i; done; echo ::endgroup::; \
         printf '\\033[0Ksection_start:15:test[collapsed=true]\\r\\033[0KTests\\n'; \
         printf 'section_start:16:unit\\r\\033[0KUnit\\n'; echo inside; \
         printf 'section_end:17:unit\\r\\033[0K\\n'; printf 'section_end:18:test\\r\\033[0K\\n'; \
         echo compiled; echo linked; echo 'Error: no space is left'; echo 'the build has failed'",
    );
    let running = served.caller.spawn("echo ::group::Open; echo one; echo two; sleep 100");

    served.perform("folds", json!({"job": job, "running": running}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_starts_a_template() {
    let sshd = Sshd::start().await;
    let policy = sshd.path("policy.toml");
    let rules = "[[rules]]\nname = \"templates\"\ncommands = [\"say\"]\nverbs = [\"hosts\", \"jobs\", \"tail\", \"spawn\"]\n\
        [templates.say]\ncommand = \"echo said {word}\"\nparameters.word = { text = 40 }\n";
    std::fs::write(&policy, rules).unwrap();
    let server = Server::with(&sshd, &["--policy", policy.to_str().unwrap()]);
    let caller = server.caller(&sshd, "alice", &[]);

    Served {
        sshd,
        server,
        caller,
    }
    .perform("template", json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_is_offered_nothing_that_changes_a_job() {
    let served = Served::start().await;
    let job = served.caller.spawn("printf 'name? '; read -r name");
    // A later token of the same name sees the same jobs.
    told(&sshjobs(&served.sshd, &["token", "revoke", "alice"]));
    let reader = served.server.caller(&served.sshd, "alice", &["--role", "read"]);

    served.perform_as(&reader, "reader", &json!({"job": job}));
}

/// An issuer where people log in, which ends with its test.
struct Issuer {
    process: Child,
    url: String,
}

impl Issuer {
    fn start(redirect_uri: &str) -> Self {
        let clients = std::env::var_os("CLIENTS").expect("`make test-page` sets CLIENTS");
        let clients = PathBuf::from(clients);
        let mut process = Command::new(clients.join("venv/bin/node"))
            .current_dir(&clients)
            .arg("issuer.mjs")
            .env("REDIRECT_URI", redirect_uri)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let url = lines.next().expect("a line").unwrap();
        Self { process, url }
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// An address of this machine on which nothing listens.
fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_logs_in_at_an_identity_provider() {
    let sshd = Sshd::start().await;
    let address = free_address();
    let issuer = Issuer::start(&format!("http://{address}/login/oidc"));
    // As in issuer.mjs.
    std::fs::write(sshd.path("oidc.secret"), "a secret: 100% of it\n").unwrap();
    let config = format!(
        "[[oidc.issuers]]\nname = \"corp\"\nissuer = \"{}\"\naudiences = [\"page\"]\n\
         [[oidc.issuers.roles]]\nrole = \"run\"\nclaims = {{ sub = \"oliv*\" }}\n\
         [oidc.issuers.login]\nclient_id = \"page\"\nclient_secret_file = \"oidc.secret\"\n",
        issuer.url
    );
    std::fs::write(sshd.path("config.toml"), config).unwrap();
    let config = sshd.path("config.toml").display().to_string();
    let server = Server::at(&sshd, &address, &["--config", &config]);
    let caller = server.caller(&sshd, "alice", &[]);

    let served = Served {
        sshd,
        server,
        caller,
    };
    served.perform("issuer", json!({"job": "web1-00000000"}));
}

/// Follows the steps that a scenario announces on stderr.
fn steps(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let stderr = BufReader::new(child.stderr.take().unwrap());
    stderr.lines().map_while(Result::ok)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_survives_a_restart_and_asks_for_an_expired_login() {
    let sshd = Sshd::start().await;
    let server = Server::with(&sshd, &[]);
    let address = server.address().to_owned();
    let caller = server.caller(&sshd, "alice", &[]);
    let job = caller.ok(
        "spawn",
        json!({"host": HOST, "command": "i=0; while sleep 0.1; do i=$((i + 1)); echo line $i; done", "durable": true}),
    );
    let scene = json!({"job": job["job_id"]});
    let mut child =
        browser(&server.url, &caller, &["page.mjs", "restart"], &scene).spawn().unwrap();
    let mut server = Some(server);
    let mut said = Vec::new();
    for step in steps(&mut child) {
        match step.as_str() {
            "step: stop the server" => drop(server.take().unwrap().stop().await),
            "step: start the server" => server = Some(Server::at(&sshd, &address, &[])),
            "step: revoke the token" => drop(told(&sshjobs(&sshd, &["token", "revoke", "alice"]))),
            _ => said.push(step),
        }
    }

    let mut measured = String::new();
    child.stdout.take().unwrap().read_to_string(&mut measured).unwrap();
    assert!(child.wait().unwrap().success(), "{}", said.join("\n"));
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_million_lines_are_scrolled_searched_and_linked() {
    let served = Served::start().await;
    let lines = 10_000_000;
    let job = served.caller.spawn(&format!("seq {lines}"));
    let waits = 0..5;
    let has_ended =
        |_| served.caller.ok("wait", json!({"job_ids": [job], "wait_ms": 30_000}))["ended"] == 1;
    assert!(waits.into_iter().any(has_ended), "the job does not end");

    let measured = served.perform("long", json!({"job": job, "lines": lines}));

    // Times depend on the machine, and are only reported.
    println!("{measured}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_jobs_are_listed_and_scrolled() {
    let measured = Served::start().await.perform("many_jobs", json!({}));

    // Times depend on the machine, and are only reported.
    println!("{measured}");
}

#[tokio::test(flavor = "multi_thread")]
async fn screen_readers_and_all_sizes_are_served() {
    let served = Served::start().await;
    let job = served.caller.ok("spawn", json!({"host": HOST, "command": COLOURED}));

    served.perform("accessible", json!({"job": job["job_id"]}));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keyboard_alone_is_enough() {
    let served = Served::start().await;
    let job = served.caller.spawn("for i in $(seq 400); do echo line $i; done; sleep 100");

    served.perform("keyboard", json!({"job": job}));
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_are_linked_copied_and_downloaded() {
    let served = Served::start().await;
    let job = served.caller.spawn(
        "for i in $(seq 400); do echo line $i; done; printf '%3000s the end of a long line\\n' x",
    );

    served.perform("copy", json!({"job": job}));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_a_job_gave_back_are_downloaded() {
    let served = Served::start().await;
    let far = served.sshd.path("far").display().to_string();
    std::fs::create_dir(&far).unwrap();
    let ran = served.caller.ok(
        "run",
        json!({"host": HOST, "cwd": far, "fetch": ["out/**", "missing"],
               "command": "mkdir out; echo text >'out/a b.txt'"}),
    );

    served.perform("files", json!({"job": ran["job_id"]}));
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_show_apps_show_the_live_log_of_a_job() {
    let served = Served::start().await;
    let command = "for i in $(seq 300); do printf '\\033[32mok\\033[0m line %s\\n' $i; done; \
        read -r go; echo the last line; exit 3";

    served.run(
        &["app_host.mjs"],
        &served.caller,
        &json!({"host": HOST, "command": command}),
    );
}

/// A deployment that asks a question.
const DEPLOY: &str = r#"#!/bin/sh
say() { printf '\033[36m[%s]\033[0m %s\n' "$1" "$2"; sleep 0.02; }
say 1/4 'pulling image shop:2026.11'
for layer in 8f1c 91aa c07e 4b2d; do printf '      layer %s \033[32mpresent\033[0m\n' $layer; done
say 2/4 'running migrations'
printf '      \033[32mok\033[0m  0142_add_invoice_number.sql\n      \033[32mok\033[0m  0143_index_orders.sql\n'
printf '\033[33mwarning:\033[0m /var is 91 %% full\n' >&2
say 3/4 'health checks'
for host in web1 web2 web3 web4; do printf '      %s \033[32m200\033[0m in 12 ms\n' $host; done
printf '\033[1;31m      web5 503\033[0m service unavailable\n' >&2
say 4/4 'switching traffic'
printf 'Switch 100 %% of the traffic to shop:2026.11? [y/N] '; read -r answer"#;

/// Takes the pictures for README and docs: `make screenshots`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it writes files: make screenshots"]
async fn pictures_of_the_page_are_taken() {
    let folder = std::env::var("SCREENSHOTS").expect("`make screenshots` says where");
    let served = Served::start().await;
    served.sshd.alias(["db1", "web2", "web3", "web4", "build1"]);
    let person = served.server.caller(&served.sshd, "olivia", &["--role", "admin"]);
    let agent = served.server.caller(&served.sshd, "agent-7", &[]);
    let spawn = |caller: &Caller, request: Value| {
        caller.ok("spawn", request)["job_id"].as_str().unwrap().to_owned()
    };
    let backup = "echo 'dumped 48 tables'; echo 'backup of shop is 1.4 GiB'";
    let ended = [
        spawn(
            &agent,
            json!({"host": "db1", "command": backup, "label": "backup"}),
        ),
        spawn(
            &agent,
            json!({"hosts": ["web[1-4]"], "command": "uptime -p", "label": "uptime"}),
        ),
        spawn(
            &person,
            json!({"host": "build1", "command": "echo 'error: 2 of 318 tests failed'; exit 2"}),
        ),
    ];
    served.caller.ok("jobs", json!({}));
    person.ok("wait", json!({"job_ids": ended}));
    spawn(
        &agent,
        json!({"host": "build1", "command": "echo 'Compiling shop v4.2.0'; sleep 100", "label": "build"}),
    );
    std::fs::write(served.sshd.path("deploy.sh"), DEPLOY).unwrap();
    let folder_of_script = served.sshd.path("").display().to_string();
    let deploy = spawn(
        &agent,
        json!({"host": HOST, "command": "sh deploy.sh shop:2026.11", "cwd": folder_of_script, "label": "deploy"}),
    );

    let scene = json!({"job": deploy, "text": "Switch 100", "folder": folder});
    served.perform_as(&person, "screenshots", &scene);
}

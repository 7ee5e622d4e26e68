//! Approvals: calls that another person has to agree to, over every face.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::command::{command, sshjobs, told};
use crate::support::server::{Caller, Server, answer, result_in};
use crate::support::tmux::Tmux;
use crate::support::{Sshd, eventually};

const RULES: &str = r#"
[[rules]]
name = "everyone looks"
verbs = ["hosts", "jobs", "tail", "read", "search", "wait", "forget"]

[[rules]]
name = "production asks a person"
callers = ["agent*", "local"]
hosts = ["prod1"]
commands = "any"
verbs = ["run", "spawn", "write", "signal", "forward"]
approval = "person"

[[rules]]
name = "two people"
callers = ["agent*"]
hosts = ["vault1"]
commands = "any"
approval = "person"
approvals = 2

[[rules]]
name = "the client asks its user"
callers = ["agent*"]
hosts = ["client1"]
commands = "any"
approval = "client"

[[rules]]
name = "templates"
callers = ["agent*"]
hosts = ["free1"]
commands = ["restart", "status"]

[[approvers]]
callers = ["alice", "bob", "role:admin"]

[templates.restart]
command = "echo restarted"
approval = "person"

[templates.status]
command = "echo fine"
"#;

/// An sshd with a name for each rule, a server with the policy, and its callers.
struct Fixture {
    sshd: Sshd,
    server: Server,
    /// Its calls don't wait for approvers.
    agent: Caller,
    alice: Caller,
}

impl Fixture {
    async fn start() -> Self {
        let sshd = Sshd::start().await;
        sshd.alias(["prod1", "vault1", "client1", "free1"]);
        let audit = format!(
            "\n[audit]\nfile = {:?}\nkey = {:?}\n",
            sshd.path("audit.jsonl"),
            sshd.path("keys/audit.key")
        );
        fs::write(sshd.path("policy.toml"), format!("{RULES}{audit}")).unwrap();
        let policy = sshd.path("policy.toml").display().to_string();
        let server = Server::with(&sshd, &["--policy", &policy]);
        let agent = server.caller(&sshd, "agent1", &[]).impatient();
        let alice = server.caller(&sshd, "alice", &[]);
        Self {
            sshd,
            server,
            agent,
            alice,
        }
    }

    fn policy(&self) -> String {
        self.sshd.path("policy.toml").display().to_string()
    }

    /// The command line on the server's machine.
    fn here(&self, arguments: &[&str]) -> std::process::Output {
        let policy = self.policy();
        sshjobs(
            &self.sshd,
            &[&["--policy", policy.as_str()], arguments].concat(),
        )
    }

    /// The lines of the audit log about an event.
    fn audited(&self, event: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.sshd.path("audit.jsonl")).unwrap();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let lines = whole.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["event"] == event).collect()
    }
}

fn on_prod(command: &str) -> Value {
    json!({"host": "prod1", "command": command})
}

/// Makes a call that has to wait, and returns the id of its approval.
#[track_caller]
fn asked(caller: &Caller, verb: &str, request: &Value) -> String {
    let (status, reply) = caller.call(verb, request.clone());
    assert_eq!(
        (status, &reply["code"], &reply["retryable"]),
        (409, &json!("approval_pending"), &json!(true)),
        "{reply}"
    );
    reply["approval_id"].as_str().unwrap().to_owned()
}

/// Answers an approval.
fn vote(approver: &Caller, id: &str, decision: &str) -> (u16, Value) {
    approver.call(
        &format!("approvals/{id}"),
        json!({"decision": decision, "reason": "as discussed"}),
    )
}

#[track_caller]
fn approve(approver: &Caller, id: &str) {
    let (status, reply) = vote(approver, id, "approve");
    assert_eq!(status, 200, "{reply}");
}

#[tokio::test]
async fn a_call_waits_for_an_approver_and_goes_through_once() {
    let fixture = Fixture::start().await;
    let Fixture {
        sshd, agent, alice, ..
    } = &fixture;
    let file = sshd.path("ran");
    let request = on_prod(&format!("echo ran >> {}", file.display()));

    let id = asked(agent, "run", &request);
    assert_eq!(asked(agent, "run", &request), id, "it is asked for once");
    assert!(!file.exists());
    approve(alice, &id);
    assert_eq!(agent.ok("run", request.clone())["exit_status"], 0);

    assert_ne!(asked(agent, "run", &request), id, "the approval is used up");
    assert_eq!(fs::read_to_string(file).unwrap(), "ran\n");
    let (status, reply) = vote(alice, &id, "approve");
    assert_eq!((status, &reply["code"]), (409, &json!("approval_closed")));
}

#[tokio::test]
async fn an_approver_sees_the_exact_call_and_no_secret() {
    let fixture = Fixture::start().await;
    let mut request = on_prod("echo 'x\u{202e}y' \u{7} a\\u000ab");
    request["env"] = json!({"PASSWORD": "s3cret-value"});
    request["stdin"] = json!("s3cret-stdin");
    request["reason"] = json!("to see it");
    let id = asked(&fixture.agent, "run", &request);

    let path = format!("/v1/approvals/{id}");
    let seen: Value = answer(fixture.alice.get(&path)).1;
    let call = &seen["call"];
    assert_eq!(call["command"], "echo 'x\u{202e}y' \u{7} a\\u000ab");
    assert_eq!(call["env"], json!(["PASSWORD"]));
    assert_eq!(call["stdin"], "12 bytes");
    assert_eq!(call["host"], "prod1");
    assert!(
        call["host_keys"][0].as_str().unwrap().contains("SHA256:"),
        "{seen}"
    );
    assert_eq!(seen["reason"], "to see it");
    assert_eq!(seen["asker"], "agent1");
    let list = fixture.here(&["approvals"]);
    let shown = told(&list);
    assert!(
        shown.contains("x\\u202ey") && shown.contains("\\u0007"),
        "{shown}"
    );
    assert!(shown.contains(r"a\\u000ab"), "not a line feed: {shown}");
    let stored = fs::read_to_string(fixture.sshd.path("state/sshjobs/approvals.json")).unwrap();
    for text in [seen.to_string(), shown, stored] {
        assert!(!text.contains("s3cret"), "{text}");
    }
}

#[tokio::test]
async fn another_call_is_not_approved_with_it() {
    let fixture = Fixture::start().await;
    let Fixture { agent, alice, .. } = &fixture;
    let request = json!({"host": "prod1", "command": "echo one", "cwd": "/tmp", "stdin": "a",
        "env": {"A": "1"}});
    let id = asked(agent, "run", &request);
    approve(alice, &id);

    for (name, value) in [
        ("command", json!("echo two")),
        ("cwd", json!("/")),
        ("stdin", json!("b")),
        ("env", json!({"A": "2"})),
        ("pty", json!(true)),
        ("durable", json!(true)),
        ("timeout_s", json!(60)),
    ] {
        let mut altered = request.clone();
        altered[name] = value;
        assert_ne!(asked(agent, "run", &altered), id, "{name}");
    }
    assert_ne!(asked(agent, "spawn", &request), id, "another verb");
    let other = fixture.server.caller(&fixture.sshd, "agent2", &[]).impatient();
    assert_ne!(asked(&other, "run", &request), id, "another caller");
    assert_eq!(agent.ok("run", request)["exit_status"], 0);
}

#[tokio::test]
async fn only_other_approvers_can_agree() {
    let fixture = Fixture::start().await;
    let Fixture {
        sshd,
        server,
        agent,
        alice,
    } = &fixture;
    let request = on_prod("true");
    let id = asked(agent, "run", &request);

    let (status, reply) = vote(agent, &id, "approve");
    assert_eq!(
        (status, &reply["code"]),
        (403, &json!("policy_denied")),
        "{reply}"
    );
    let elsewhere = server.caller(sshd, "bob", &["--hosts", "free1"]);
    let (status, reply) = vote(&elsewhere, &id, "approve");
    assert_eq!(
        (status, &reply["code"]),
        (404, &json!("not_found")),
        "{reply}"
    );
    let seen: Value = answer(elsewhere.get("/v1/approvals")).1;
    assert_eq!(seen["approvals"], json!([]));

    // A caller of the machine is an admin, and an approver, except of its own calls.
    let policy = fixture.policy();
    let mut own = command(sshd, &["--policy", &policy, "run", "prod1", "--", "true"]);
    let mut own = own.stderr(Stdio::null()).spawn().unwrap();
    let listed = || -> Vec<Value> {
        let told = told(&fixture.here(&["approvals", "--json"]));
        told.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    eventually("it waits", async || listed().len() == 2).await;
    let own_id = listed()[1]["id"].as_str().unwrap().to_owned();
    let refused = fixture.here(&["approve", &own_id]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("another caller has to decide"));
    told(&fixture.here(&["approve", &id, "--reason", "fine"]));
    approve(alice, &own_id);
    assert!(own.wait().unwrap().success());
    assert_eq!(agent.ok("run", request)["exit_status"], 0);
}

#[tokio::test]
async fn a_caller_who_may_only_read_approves_nothing() {
    let fixture = Fixture::start().await;
    let request = on_prod("true");
    let id = asked(&fixture.agent, "run", &request);
    let reader = fixture.server.caller(&fixture.sshd, "bob", &["--role", "read"]);
    assert_eq!(vote(&reader, &id, "approve").0, 403);

    let read_only = Server::with(
        &fixture.sshd,
        &["--policy", &fixture.policy(), "--read-only"],
    );
    let alice = Caller::new(&read_only.url, &fixture.alice.token);
    assert_eq!(vote(&alice, &id, "approve").0, 403);

    asked(&fixture.agent, "run", &request);
}

#[tokio::test]
async fn a_refusal_reaches_the_asker_and_stands() {
    let fixture = Fixture::start().await;
    let Fixture { agent, alice, .. } = &fixture;
    let request = on_prod("true");
    let id = asked(agent, "run", &request);
    let (status, _) = vote(alice, &id, "deny");
    assert_eq!(status, 200);

    for _ in 0..2 {
        let (status, reply) = agent.call("run", request.clone());
        assert_eq!((status, &reply["code"]), (403, &json!("approval_denied")));
        let message = reply["message"].as_str().unwrap();
        assert!(
            message.contains("alice") && message.contains("as discussed"),
            "{message}"
        );
    }
    let (status, reply) = vote(alice, &id, "approve");
    assert_eq!((status, &reply["code"]), (409, &json!("approval_closed")));
}

#[tokio::test]
async fn two_people_have_to_agree_where_the_rule_says_so() {
    let fixture = Fixture::start().await;
    let Fixture {
        sshd,
        server,
        agent,
        alice,
    } = &fixture;
    let request = json!({"host": "vault1", "command": "true"});
    let id = asked(agent, "run", &request);
    approve(alice, &id);
    assert_eq!(asked(agent, "run", &request), id);

    let (status, reply) = vote(alice, &id, "approve");
    assert_eq!(
        (status, &reply["code"]),
        (409, &json!("approval_closed")),
        "{reply}"
    );
    approve(&server.caller(sshd, "bob", &[]), &id);

    assert_eq!(agent.ok("run", request)["exit_status"], 0);
}

#[tokio::test]
async fn a_changed_policy_or_host_key_voids_an_approval() {
    let fixture = Fixture::start().await;
    let Fixture {
        sshd, agent, alice, ..
    } = &fixture;
    let request = on_prod("true");
    let change = |text: &str, file: &str| {
        let mut file = OpenOptions::new().append(true).open(sshd.path(file)).unwrap();
        writeln!(file, "{text}").unwrap();
    };

    let before = asked(agent, "run", &request);
    approve(alice, &before);
    // Other calls, so that the server reads the file again.
    let policy_of_another_call = || {
        let id = asked(agent, "run", &on_prod("another"));
        let seen = answer(alice.get(&format!("/v1/approvals/{id}"))).1;
        seen["call"]["policy"].clone()
    };
    let old_policy = policy_of_another_call();
    change("# Changed.", "policy.toml");
    eventually("the new policy is in force", async || {
        policy_of_another_call() != old_policy
    })
    .await;
    let after = asked(agent, "run", &request);
    assert_ne!(after, before);

    approve(alice, &after);
    let known = fs::read_to_string(sshd.path("known_hosts")).unwrap();
    let host = known.split_ascii_whitespace().next().unwrap().to_owned();
    let other = fs::read_to_string(sshd.path("other.pub")).unwrap();
    let key: Vec<&str> = other.split_ascii_whitespace().take(2).collect();
    change(&format!("{host} {}", key.join(" ")), "known_hosts");
    assert_ne!(asked(agent, "run", &request), after);
}

#[tokio::test]
async fn a_vote_on_a_call_of_an_earlier_policy_does_not_count() {
    let fixture = Fixture::start().await;
    let id = asked(&fixture.agent, "run", &on_prod("true"));
    let text = fs::read_to_string(fixture.policy()).unwrap();
    fs::write(fixture.policy(), format!("{text}\n# Changed.\n")).unwrap();

    // Another process, which reads the new file.
    let refused = fixture.here(&["approve", &id]);

    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        words.contains("approval_closed") && words.contains("void"),
        "{words}"
    );
}

#[tokio::test]
async fn a_call_with_an_idempotency_key_finds_its_job_again() {
    let fixture = Fixture::start().await;
    let file = fixture.sshd.path("ran");
    let mut request = on_prod(&format!("echo ran >> {}", file.display()));
    request["idempotency_key"] = json!("once");
    let id = asked(&fixture.agent, "run", &request);
    approve(&fixture.alice, &id);

    let first = fixture.agent.ok("run", request.clone());
    let again = fixture.agent.ok("run", request.clone());

    assert_eq!(first["job_id"], again["job_id"]);
    assert_eq!(fs::read_to_string(file).unwrap(), "ran\n");
}

#[tokio::test]
async fn an_approval_that_was_used_lets_no_other_command_through() {
    let fixture = Fixture::start().await;
    let Fixture { sshd, agent, .. } = &fixture;
    let running = on_prod("sleep 60");
    approve(&fixture.alice, &asked(agent, "spawn", &running));
    let running = agent.ok("spawn", running);
    let mut approved = on_prod("true");
    approved["idempotency_key"] = json!("once");
    approved["after"] = json!([running["job_id"]]);
    approve(&fixture.alice, &asked(agent, "spawn", &approved));
    let queued = agent.ok("spawn", approved.clone());
    let queued = json!({"job_id": queued["job_id"]});
    agent.ok(
        "signal",
        json!({"job_id": queued["job_id"], "signal": "TERM"}),
    );
    let job = queued["job_id"].as_str().unwrap();
    agent.ok("forget", json!({"job_id": job}));

    let file = sshd.path("ran");
    let mut other = on_prod(&format!("echo ran >> {}", file.display()));
    other["idempotency_key"] = json!("once");
    asked(agent, "spawn", &other);
    let (status, again) = agent.call("spawn", approved);
    assert_eq!((status, &again["code"]), (410, &json!("expired_job")));

    assert!(!file.exists());
    let decisions = fixture.audited("decision").into_iter();
    let allowed = decisions.filter(|line| line["verb"] == "spawn" && line["allowed"] == true);
    assert_eq!(allowed.count(), 2);
}

#[tokio::test]
async fn of_calls_that_race_for_an_approval_one_goes_through() {
    let fixture = Fixture::start().await;
    let file = fixture.sshd.path("ran");
    let request = on_prod(&format!("echo ran >> {}", file.display()));
    let id = asked(&fixture.agent, "run", &request);
    approve(&fixture.alice, &id);

    let racers: Vec<_> = (0..8)
        .map(|_| {
            let agent = fixture.agent.clone();
            let request = request.clone();
            std::thread::spawn(move || agent.call("run", request).0)
        })
        .collect();
    let statuses: Vec<u16> = racers.into_iter().map(|racer| racer.join().unwrap()).collect();

    assert_eq!(
        statuses.iter().filter(|status| **status == 200).count(),
        1,
        "{statuses:?}"
    );
    assert_eq!(fs::read_to_string(file).unwrap(), "ran\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_waits_a_while_and_continues_when_someone_agrees() {
    let fixture = Fixture::start().await;
    let patient = fixture.server.caller(&fixture.sshd, "agent3", &[]);
    let call = std::thread::spawn(move || patient.call("run", on_prod("echo at last")));
    let waiting = || answer(fixture.alice.get("/v1/approvals")).1["approvals"][0]["id"].clone();
    eventually("it asks", async || waiting().is_string()).await;
    let id = waiting().as_str().unwrap().to_owned();

    told(&fixture.here(&["approve", &id]));

    let (status, reply) = call.join().unwrap();
    assert_eq!(
        (status, &reply["head"]),
        (200, &json!(["at last"])),
        "{reply}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_waits_and_says_so() {
    let fixture = Fixture::start().await;
    for verb in ["run", "spawn"] {
        let socket = fixture.server.socket.display().to_string();
        let token = fixture.agent.token.clone();
        let mut client = command(
            &fixture.sshd,
            &[
                "--server", &socket, verb, "--reason", "why not", "prod1", "--", "echo", verb,
            ],
        );
        let mut client = client.env("SSHJOBS_TOKEN", token).stderr(Stdio::piped()).spawn().unwrap();
        let mut notes = BufReader::new(client.stderr.take().unwrap()).lines();
        let note = notes.next().unwrap().unwrap();
        assert!(note.contains("waits for an approver"), "{note}");

        let listed = told(&fixture.here(&["approvals", "--json"]));
        let waiting: Value = serde_json::from_str(&listed).unwrap();
        assert_eq!(waiting["reason"], "why not");
        let id = waiting["id"].as_str().unwrap();
        assert!(note.contains(id), "{note}");
        told(&fixture.here(&["approve", id]));

        assert!(client.wait().unwrap().success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_call_that_waits_for_an_approver_is_a_task() {
    let fixture = Fixture::start().await;
    let arguments = json!({"host": "prod1", "command": "echo from a task; exit 4"});
    let call = json!({"name": "ssh_run", "arguments": arguments});
    let begun = fixture.agent.result("tools/call", call);
    assert_eq!(
        (&begun["resultType"], &begun["status"]),
        (&json!("task"), &json!("working")),
        "{begun}"
    );
    assert!(
        begun["statusMessage"].as_str().unwrap().contains("approver"),
        "{begun}"
    );
    let task = json!({"taskId": begun["taskId"]});
    assert_eq!(
        fixture.agent.result("tasks/get", task.clone())["status"],
        "working"
    );

    let waiting: Value = answer(fixture.alice.get("/v1/approvals")).1;
    approve(
        &fixture.alice,
        waiting["approvals"][0]["id"].as_str().unwrap(),
    );

    let get = || fixture.agent.result("tasks/get", task.clone());
    eventually("the task ends", async || get()["status"] != "working").await;
    let ended = get();
    let reply = &ended["result"]["structuredContent"];
    assert_eq!(
        (&reply["exit_status"], &reply["head"]),
        (&json!(4), &json!(["from a task"])),
        "{ended}"
    );
}

/// Calls `ssh_run` on the host whose rule asks the client's user, who gives this answer.
fn run_with_answer(agent: &Caller, answer: &str) -> Value {
    let capable = json!({"elicitation": {"url": {}}});
    let call = json!({"name": "ssh_run", "arguments": {"host": "client1", "command": "echo mine"}});
    let asked = result_in(&agent.modern_as(capable.clone(), "tools/call", call.clone()));
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let (question, input) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let url = input["params"]["url"].as_str().unwrap();
    let page = ureq::get(url).call().unwrap().into_body().read_to_string().unwrap();
    assert!(page.contains("echo mine"), "{page}");
    let form = page.split_once("name=form value=").unwrap().1.split('>').next().unwrap();
    ureq::post(url).send_form([("form", form), ("answer", answer)]).unwrap();
    let mut again = call;
    again["requestState"] = asked["requestState"].clone();
    again["inputResponses"] = json!({question: {"action": "accept"}});
    result_in(&agent.modern_as(capable, "tools/call", again))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_user_of_the_client_is_asked_where_the_rule_says_so() {
    let fixture = Fixture::start().await;

    let agreed = run_with_answer(&fixture.agent, "yes");
    assert_eq!(
        agreed["structuredContent"]["head"],
        json!(["mine"]),
        "{agreed}"
    );
    let refused = run_with_answer(&fixture.agent, "no");
    assert_eq!(
        refused["_meta"]["sshjobs/error"]["code"], "approval_denied",
        "{refused}"
    );
    let (status, reply) = fixture.agent.call("run", json!({"host": "client1", "command": "true"}));
    assert_eq!(
        (status, &reply["code"]),
        (403, &json!("approval_unavailable")),
        "nobody was asked: {reply}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_user_of_the_client_is_not_asked_for_more_than_is_shown() {
    let fixture = Fixture::start().await;
    let command = format!("true {}; echo hidden", "x".repeat(2000));
    let call = json!({"name": "ssh_run", "arguments": {"host": "client1", "command": command}});

    let capable = json!({"elicitation": {"url": {}}});
    let refused = result_in(&fixture.agent.modern_as(capable, "tools/call", call));

    let error = &refused["_meta"]["sshjobs/error"];
    assert_eq!(error["code"], "approval_unavailable", "{refused}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("2000 of them"), "{message}");
}

#[tokio::test]
async fn an_input_is_approved_with_its_content() {
    let fixture = Fixture::start().await;
    let Fixture { agent, alice, .. } = &fixture;
    let request = on_prod("cat");
    approve(alice, &asked(agent, "spawn", &request));
    let job = agent.ok("spawn", request)["job_id"].clone();
    let write = |data: &str| json!({"job_id": job, "data": data});
    let content = |id: &str| {
        let seen = answer(alice.get(&format!("/v1/approvals/{id}"))).1;
        seen["call"]["content"].as_str().unwrap().to_owned()
    };

    let mut secret = write("s3cret\n");
    secret["secret"] = json!(true);
    let hidden = content(&asked(agent, "write", &secret));
    assert!(hidden.starts_with("7 bytes that are not shown"), "{hidden}");
    let id = asked(agent, "write", &write("good\n"));
    assert_eq!(content(&id), "good\n");
    approve(alice, &id);
    assert_ne!(asked(agent, "write", &write("evil\n")), id);
    agent.ok("write", write("good\n"));
    agent.ok("write", json!({"job_id": job, "close_after": true}));

    agent.ok("wait", json!({"job_ids": [job], "wait_ms": 20_000}));
    let page = agent.ok("tail", json!({"job_id": job, "since_line_no": 0}));
    assert_eq!(page["lines"][0], "good", "{page}");
}

#[tokio::test]
async fn a_template_asks_although_its_rule_does_not() {
    let fixture = Fixture::start().await;
    let Fixture { agent, alice, .. } = &fixture;
    let template = |name: &str| json!({"host": "free1", "template": name});

    assert_eq!(agent.ok("run", template("status"))["exit_status"], 0);
    let id = asked(agent, "run", &template("restart"));
    approve(alice, &id);
    assert_eq!(agent.ok("run", template("restart"))["exit_status"], 0);
    let hosts = agent.ok("hosts", json!({}));
    let asks = |name: &str| {
        let templates = hosts["templates"].as_array().unwrap();
        templates.iter().find(|known| known["name"] == name).unwrap()["approval"].clone()
    };
    assert_eq!(
        (asks("restart"), asks("status")),
        (json!(true), Value::Null)
    );
}

#[tokio::test]
async fn several_hosts_at_once_can_not_be_approved() {
    let fixture = Fixture::start().await;
    let request = json!({"hosts": ["prod1"], "command": "true"});
    let (status, reply) = fixture.agent.call("spawn", request);
    assert_eq!(
        (status, &reply["code"]),
        (403, &json!("approval_unavailable")),
        "{reply}"
    );
}

#[tokio::test]
async fn questions_and_answers_are_in_the_audit_log() {
    let fixture = Fixture::start().await;
    let Fixture { agent, alice, .. } = &fixture;
    let request = on_prod("true");
    let id = asked(agent, "run", &request);
    approve(alice, &id);
    agent.ok("run", request);

    let decisions = fixture.audited("decision");
    let about: Vec<&Value> =
        decisions.iter().filter(|line| line["approval"] == id.as_str()).collect();
    assert_eq!(about.len(), 2, "{decisions:?}");
    assert_eq!(
        (&about[0]["allowed"], &about[1]["allowed"]),
        (&json!(false), &json!(true))
    );
    let voted = fixture.audited("voted");
    assert_eq!(voted.len(), 1);
    assert_eq!(
        (
            &voted[0]["by"],
            &voted[0]["asker"],
            &voted[0]["agrees"],
            &voted[0]["reason"]
        ),
        (
            &json!("alice"),
            &json!("agent1"),
            &json!(true),
            &json!("as discussed")
        )
    );
    told(&fixture.here(&["audit", "verify"]));
    assert!(told(&fixture.here(&["audit", "show"])).contains("alice approved"));
}

#[tokio::test]
async fn a_rule_that_nobody_could_approve_is_refused() {
    let fixture = Fixture::start().await;
    for (line, words) in [
        (
            "verbs = [\"put\"]\napproval = \"person\"",
            "nobody can be asked about put",
        ),
        (
            "commands = \"any\"\napprovals = 2",
            "with approval = \"person\"",
        ),
        (
            "commands = \"any\"\napproval = \"person\"\napprovals = 0",
            "1 to 10",
        ),
    ] {
        let text =
            format!("[[rules]]\nname = \"wrong\"\n{line}\n[[approvers]]\ncallers = [\"a\"]\n");
        fs::write(fixture.policy(), text).unwrap();
        let output = fixture.here(&["policy", "check"]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains(words), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stdin_of_an_approved_run_reaches_its_command() {
    let fixture = Fixture::start().await;
    let policy = fixture.policy();
    let socket = fixture.server.socket.display().to_string();
    // Through the server, and in a process of its own.
    for (options, token) in [
        (["--server", &socket], fixture.agent.token.clone()),
        (["--policy", &policy], String::new()),
    ] {
        let arguments = [&options[..], &["run", "prod1", "--", "wc", "-c"]].concat();
        let mut client = command(&fixture.sshd, &arguments);
        let mut client = client
            .env("SSHJOBS_TOKEN", token)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut notes = BufReader::new(client.stderr.take().unwrap()).lines();
        let note = notes.next().unwrap().unwrap();
        let id = note.split_ascii_whitespace().find(|word| word.starts_with("ap_")).unwrap();
        approve(&fixture.alice, id);
        // Longer than one message, so that it is more than one write.
        client.stdin.take().unwrap().write_all(&vec![b'x'; 300_000]).unwrap();

        let output = client.wait_with_output().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout).trim(),
            "300000",
            "{options:?}"
        );
    }
}

#[tokio::test]
async fn a_job_that_was_approved_can_be_stopped_without_asking() {
    let fixture = Fixture::start().await;
    let request = on_prod("sleep 600");
    approve(&fixture.alice, &asked(&fixture.agent, "spawn", &request));
    let job = fixture.agent.ok("spawn", request)["job_id"].clone();

    fixture.agent.ok("signal", json!({"job_id": job, "signal": "KILL"}));

    let ended = fixture.agent.ok("wait", json!({"job_ids": [job], "wait_ms": 20_000}));
    assert_eq!(ended["jobs"][0]["state"], "signaled", "{ended}");
}

#[tokio::test]
async fn a_forward_is_approved_with_both_ends() {
    let fixture = Fixture::start().await;
    let Fixture { agent, alice, .. } = &fixture;
    let forward = |listen: &str| json!({"action": "open", "host": "prod1", "listen": listen, "target": "127.0.0.1:9"});

    let id = asked(agent, "forward", &forward("127.0.0.1:0"));
    let seen = answer(alice.get(&format!("/v1/approvals/{id}"))).1;
    assert_eq!(seen["call"]["target"], "127.0.0.1:9", "{seen}");
    let ends = seen["call"]["content"].as_str().unwrap();
    assert!(
        ends.contains("127.0.0.1:0 here to 127.0.0.1:9 there"),
        "{ends}"
    );
    approve(alice, &id);
    assert_ne!(asked(agent, "forward", &forward("127.0.0.1:65000")), id);
    agent.ok("forward", forward("127.0.0.1:0"));
}

#[tokio::test]
async fn an_approval_is_for_an_account_and_a_machine_also_if_no_rule_names_one() {
    let fixture = Fixture::start().await;
    fs::write(
        fixture.policy(),
        "[[rules]]\nname = \"all\"\ncommands = \"any\"\napproval = \"person\"\n\
         [[approvers]]\ncallers = [\"alice\"]\n",
    )
    .unwrap();
    let policy = fixture.policy();
    let server = Server::with(&fixture.sshd, &["--policy", &policy]);
    let agent = server.caller(&fixture.sshd, "agent9", &[]).impatient();
    let alice = Caller::new(&server.url, &fixture.alice.token);

    let id = asked(&agent, "run", &on_prod("true"));

    let seen = answer(alice.get(&format!("/v1/approvals/{id}"))).1;
    let call = &seen["call"];
    assert!(call["machine"].to_string().contains("127.0.0.1"), "{seen}");
    assert_eq!(call["users"].as_array().unwrap().len(), 1, "{seen}");
}

#[tokio::test]
async fn a_server_that_was_killed_lets_an_approved_call_through_once() {
    let fixture = Fixture::start().await;
    let file = fixture.sshd.path("ran");
    let request = on_prod(&format!("echo ran >> {}", file.display()));
    approve(&fixture.alice, &asked(&fixture.agent, "run", &request));
    let policy = fixture.policy();
    let token = fixture.agent.token.clone();
    drop(fixture.server);

    let server = Server::with(&fixture.sshd, &["--policy", &policy]);
    let agent = Caller::new(&server.url, &token).impatient();
    assert_eq!(agent.ok("run", request.clone())["exit_status"], 0);
    asked(&agent, "run", &request);

    assert_eq!(fs::read_to_string(file).unwrap(), "ran\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_with_secrets_is_no_task_and_can_be_repeated() {
    let fixture = Fixture::start().await;
    let arguments = json!({"host": "prod1", "command": "cat", "stdin": "s3cret"});
    let call = json!({"name": "ssh_run", "arguments": arguments});
    let pending = fixture.agent.result("tools/call", call.clone());
    assert_eq!(
        pending["_meta"]["sshjobs/error"]["code"], "approval_pending",
        "{pending}"
    );
    let id = pending["_meta"]["sshjobs/error"]["approval_id"].as_str().unwrap();
    approve(&fixture.alice, id);

    let done = fixture.agent.result("tools/call", call);

    assert_eq!(
        done["structuredContent"]["head"],
        json!(["s3cret"]),
        "{done}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approver_reads_the_exact_call_in_top_and_agrees() {
    let fixture = Fixture::start().await;
    let Fixture { sshd, agent, .. } = &fixture;
    let long = format!("echo {} the-end-of-it", "x".repeat(150));
    let first = asked(agent, "run", &on_prod("echo first call"));
    let second = asked(agent, "run", &on_prod(&long));
    let secret = sshd.path("alice.token");
    fs::write(&secret, &fixture.alice.token).unwrap();
    let tmux = Tmux::start(
        &format!(
            "{} --server {} --token-file {} top",
            env!("CARGO_BIN_EXE_sshjobs"),
            fixture.server.url,
            secret.display()
        ),
        (100, 24),
    );
    tmux.shows(&["2 approvals wait: A"]).await;

    tmux.press(&["A"]);
    tmux.shows(&[
        "approval 1 of 2",
        &first,
        "agent1",
        "echo first call",
        "a approve",
    ])
    .await;
    tmux.press(&["n"]);
    // Nothing of the call is hidden at the side.
    tmux.shows(&["approval 2 of 2", &second, "the-end-of-it"]).await;
    tmux.press(&["a"]);
    tmux.shows(&[&format!("approve exactly {second}? y yes")]).await;
    tmux.press(&["q"]);
    tmux.shows(&["nothing was decided"]).await;
    tmux.press(&["a", "y"]);
    tmux.shows(&[&format!("{second} waits no more")]).await;
    tmux.press(&["n"]);
    tmux.shows(&["approval 1 of 1", &first, "echo first call"]).await;
    tmux.press(&["x", "y"]);
    tmux.shows(&[&format!("{first} waits no more")]).await;
    tmux.press(&["Escape", "q"]);
    tmux.shows(&["ended with 0"]).await;

    assert_eq!(agent.ok("run", on_prod(&long))["exit_status"], 0);
    let (status, refused) = agent.call("run", on_prod("echo first call"));
    assert_eq!(
        (status, &refused["code"]),
        (403, &json!("approval_denied")),
        "{refused}"
    );
}

#[tokio::test]
async fn an_approver_reads_the_script_and_no_other_runs_with_it() {
    let fixture = Fixture::start().await;
    let script = |text: &str| json!({"host": "prod1", "script": text, "interpreter": "sh"});
    let id = asked(&fixture.agent, "run", &script("echo one"));
    let seen = answer(fixture.alice.get(&format!("/v1/approvals/{id}"))).1;
    assert_eq!(seen["call"]["script"], "echo one", "{seen}");
    approve(&fixture.alice, &id);

    asked(&fixture.agent, "run", &script("echo two"));
    let ran = fixture.agent.ok("run", script("echo one"));

    assert_eq!(ran["head"], json!(["one"]), "{ran}");
    let decisions = fixture.audited("decision");
    let sha256 = decisions.last().unwrap()["script_sha256"].as_str().unwrap().to_owned();
    assert_eq!(sha256.len(), 64, "{decisions:?}");
}

#[tokio::test]
async fn an_approval_is_given_back_if_its_caller_leaves_before_the_command_is_sent() {
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = silent.local_addr().unwrap().port();
    let fixture = Fixture::start().await;
    let config = fixture.sshd.ssh_config();
    let others = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("Host prod1\n  Port {port}\n{others}")).unwrap();
    let request = on_prod("true");
    let id = asked(&fixture.agent, "run", &request);
    approve(&fixture.alice, &id);

    let leaving = Caller::new(&fixture.server.url, &fixture.agent.token)
        .leaving_after(Duration::from_secs(1));
    leaving.try_call("run", &request).expect_err("the host never answers");

    eventually("the start is recorded as failed", async || {
        fixture.audited("failed").len() == 1
    })
    .await;
    let state = || answer(fixture.alice.get(&format!("/v1/approvals/{id}"))).1["state"].clone();
    eventually("the approval can be used again", async || {
        state() == "approved"
    })
    .await;
}

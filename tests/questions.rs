//! A login's question reaches the caller who needs the login, in both eras of MCP, and no other
//! caller.

use std::io::{BufRead, BufReader};

use crate::support::server::{Caller, Server, answer, result_in};
use crate::support::{HOST, Sshd, ssh_keygen};
use serde_json::{Value, json};

const SECRET: &str = "canary+of+the+test";

/// A host whose key has a passphrase, and a server for it.
async fn locked() -> (Sshd, Server) {
    let sshd = Sshd::start().await;
    let key = sshd.path("id").display().to_string();
    ssh_keygen(&["-p", "-a", "2", "-P", "", "-N", SECRET, "-f", &key]);
    let server = Server::start(&sshd);
    (sshd, server)
}

/// Types an answer into the page at an address. Returns the text of the next page.
fn type_in(url: &str, text: &str) -> String {
    let page = ureq::get(url).call().unwrap().into_body().read_to_string().unwrap();
    assert!(
        page.contains("passphrase of") && page.contains(HOST),
        "{page}"
    );
    let form = page
        .split_once("name=form value=")
        .unwrap()
        .1
        .split('>')
        .next()
        .unwrap()
        .to_owned();
    let answered = ureq::post(url).send_form([("form", form.as_str()), ("answer", text)]).unwrap();
    answered.into_body().read_to_string().unwrap()
}

fn run() -> Value {
    json!({"name": "ssh_run", "arguments": {"host": HOST, "command": "echo here"}})
}

/// A call of a client that can open addresses, and knows the newest revision.
fn call(caller: &Caller, params: Value) -> Value {
    result_in(&caller.modern_as(json!({"elicitation": {"url": {}}}), "tools/call", params))
}

/// The same of a client that gives up soon.
fn impatient(caller: &Caller, params: Value) -> Option<Value> {
    let (caller, sender) = (caller.clone(), std::sync::mpsc::channel());
    let answered = sender.1;
    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": with_meta(params)})
            .to_string();
    let address = caller.url.split_once("://").unwrap().1.to_owned();
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(1))).unwrap();
        write!(
            stream,
            "POST /mcp HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
             MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: ssh_run\r\nContent-Length: {}\r\n\r\n{body}",
            caller.token,
            body.len()
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).ok();
        sender.0.send(result_in(&text)).ok();
    });
    answered.recv().ok().filter(|result| !result.is_null())
}

fn with_meta(mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"url": {}}},
    });
    params
}

/// The question in the answer to a call, its address and the state for the next call.
fn question(answered: &Value) -> (String, String, Value) {
    assert_eq!(answered["resultType"], "input_required", "{answered}");
    let (id, asked) = answered["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(
        (&asked["method"], &asked["params"]["mode"]),
        (&json!("elicitation/create"), &json!("url"))
    );
    let url = asked["params"]["url"].as_str().unwrap();
    (id.clone(), url.to_owned(), answered["requestState"].clone())
}

/// The same call again, with the person's reaction to the question.
fn come_back(id: &str, state: &Value, action: &str) -> Value {
    let mut params = run();
    params["requestState"] = state.clone();
    params["inputResponses"] = json!({id: {"action": action}});
    params
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_asks_the_caller_who_needs_it_and_its_answer_is_used_for_no_other() {
    let (sshd, server) = locked().await;
    let (alice, bob) = (
        server.caller(&sshd, "alice", &[]),
        server.caller(&sshd, "bob", &[]),
    );
    let (id, url, state) = question(&call(&alice, run()));
    assert!(url.starts_with(&format!("{}/answer/", server.url)), "{url}");
    assert_eq!(
        call(&bob, come_back(&id, &state, "accept")),
        Value::Null,
        "another's call"
    );
    let mut other = come_back(&id, &state, "accept");
    other["arguments"]["command"] = json!("id");
    assert_eq!(
        call(&alice, other),
        Value::Null,
        "the state is that of another command"
    );
    // A client that stopped waiting may return once more.
    assert_eq!(impatient(&alice, come_back(&id, &state, "accept")), None);
    assert!(type_in(&url, SECRET).contains("Thank you"));
    let reply = call(&alice, come_back(&id, &state, "accept"));
    assert_eq!(
        reply["structuredContent"]["head"],
        json!(["here"]),
        "{reply}"
    );
    assert_eq!(
        call(&alice, come_back(&id, &state, "accept")),
        Value::Null,
        "the call is over"
    );
    let again = call(&alice, run());
    assert_eq!(
        again["structuredContent"]["head"],
        json!(["here"]),
        "an answer that succeeded is not asked for again"
    );
    let gone = answer(ureq::get(&url).config().http_status_as_error(false).build().call().unwrap());
    assert_eq!(gone.0, 404);
    // Bob is not asked over the JSON API; with a client that opens addresses he is asked himself.
    let (status, refused) = bob.call("run", run()["arguments"].clone());
    assert_eq!(
        (status, &refused["code"]),
        (502, &json!("auth_failed")),
        "{refused}"
    );
    let (id, _, state) = question(&call(&bob, run()));
    let declined = call(&bob, come_back(&id, &state, "decline"));
    assert_eq!(
        declined["_meta"]["sshjobs/error"]["code"], "auth_failed",
        "{declined}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_a_session_is_asked_while_it_waits() {
    let (sshd, server) = locked().await;
    let caller = server.caller(&sshd, "carol", &[]);
    let message = |id: u64, method: &str, params: Value| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    let hello = json!({
        "protocolVersion": "2025-11-25",
        "clientInfo": {"name": "test", "version": "0"},
        "capabilities": {"elicitation": {"url": {}}},
    });
    let begun = caller.mcp(message(0, "initialize", hello), &[]);
    let session = begun.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    drop(begun.into_body().read_to_string());
    let headers = [
        ("Mcp-Session-Id", session.as_str()),
        ("MCP-Protocol-Version", "2025-11-25"),
    ];
    caller.mcp(
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        &headers,
    );
    let called = caller.mcp(message(1, "tools/call", run()), &headers);
    let lines = BufReader::new(called.into_body().into_reader()).lines().map_while(Result::ok);
    let mut messages =
        lines.filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data:")?).ok());
    let asked = messages.find(|message| message["method"] == "elicitation/create").unwrap();
    caller.mcp(
        json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept"}}),
        &headers,
    );
    assert!(type_in(asked["params"]["url"].as_str().unwrap(), SECRET).contains("Thank you"));
    let reply = messages.find(|message| message["id"] == 1).unwrap();
    assert_eq!(
        reply["result"]["structuredContent"]["head"],
        json!(["here"]),
        "{reply}"
    );
    assert!(!reply.to_string().contains("canary") && !asked.to_string().contains("canary"));
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_share_the_connection_that_the_operators_key_opens() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    for name in ["alice", "bob", "carol"] {
        server
            .caller(&sshd, name, &[])
            .ok("run", json!({"host": HOST, "command": "true"}));
    }
    let shown = ureq::get(&server.metrics).call().unwrap().into_body().read_to_string().unwrap();
    assert!(shown.contains("sshjobs_ssh_connections 1\n"), "{shown}");
}

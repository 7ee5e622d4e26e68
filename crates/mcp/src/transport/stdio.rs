//! Reads and writes JSON-RPC lines around rmcp: every broken line gets an answer, and calls in
//! progress are bounded.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::bytes::Regex;
use secrecy::zeroize::{Zeroize, Zeroizing};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader,
    DuplexStream, duplex,
};
use tokio::sync::{mpsc, watch};

/// The longest message a client may send, in bytes.
const LONGEST_MESSAGE: usize = 8 << 20;
const PIPE_BYTES: usize = 64 << 10;

// Codes of JSON-RPC 2.0, section 5.1.
const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const INVALID_PARAMS: i32 = -32602;

/// Maximum own answers that wait to be written.
const ANSWERS: usize = 64;
/// Maximum calls in progress, and maximum bytes of them. Beyond that no more are read.
const MOST_CALLS: usize = 128;
const MOST_CALL_BYTES: usize = 32 << 20;

/// Calls that were read and not answered yet, by id, with their sizes.
#[derive(Clone, Debug, Default)]
struct UnansweredCalls(watch::Sender<HashMap<String, usize>>);

impl UnansweredCalls {
    /// Registers a call, once there is room for it.
    async fn begin(&self, id: &Value, bytes: usize) {
        // We hold the sender, so this can't fail.
        drop(
            self.0
                .subscribe()
                .wait_for(|calls: &HashMap<String, usize>| {
                    let total: usize = calls.values().sum();
                    calls.is_empty()
                        || (calls.len() < MOST_CALLS && total + bytes <= MOST_CALL_BYTES)
                })
                .await,
        );
        // There is still room: only `carry_in` adds calls, one at a time.
        self.0.send_modify(|calls| _ = calls.insert(id.to_string(), bytes));
    }

    /// Notes that a call was answered or cancelled.
    fn end(&self, id: &Value) {
        self.0.send_if_modified(|calls| calls.remove(&id.to_string()).is_some());
    }
}

/// The members of a message that distinguish calls from answers.
#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    id: Option<Value>,
    #[serde(default)]
    method: Option<IgnoredAny>,
}

/// The streams between a client and rmcp. rmcp silently drops lines that are not JSON, so that the
/// caller would wait forever. Here each gets an answer.
pub(crate) struct Wire {
    /// Streams that rmcp reads from and writes to.
    pub(crate) server: (DuplexStream, DuplexStream),
    to_server: DuplexStream,
    from_server: DuplexStream,
    answers: (mpsc::Sender<Value>, mpsc::Receiver<Value>),
}

impl Wire {
    pub(crate) fn new() -> Self {
        let (to_server, server_reads) = duplex(PIPE_BYTES);
        let (server_writes, from_server) = duplex(PIPE_BYTES);
        let answers = mpsc::channel(ANSWERS);
        Self {
            server: (server_reads, server_writes),
            to_server,
            from_server,
            answers,
        }
    }

    /// Splits the wire into a future that copies the client's messages to the server and resolves at
    /// their end; one that copies the server's messages to the client and resolves after the last; and the
    /// server's streams.
    pub(crate) fn into_parts(
        self,
        input: impl tokio::io::AsyncRead + Unpin,
        output: impl AsyncWrite + Unpin,
    ) -> (
        impl Future<Output = ()>,
        impl Future<Output = Result<(), ClientGone>>,
        (DuplexStream, DuplexStream),
    ) {
        let (sender, receiver) = self.answers;
        let calls = UnansweredCalls::default();
        let answered = calls.clone();
        let carry_in = async move {
            if let Err(error) = carry_in(BufReader::new(input), self.to_server, sender, calls).await
            {
                tracing::debug!(%error, "stdin can't be read any further");
            }
            // Here the server's stream is dropped already, so that rmcp sees the end, too.
        };
        let carry_out = async move {
            if let Err(error) =
                carry_out(BufReader::new(self.from_server), output, receiver, answered).await
            {
                tracing::debug!(%error, "stdout can't be written any further");
                return Err(ClientGone);
            }
            Ok(())
        };
        (carry_in, carry_out, self.server)
    }
}

/// The client reads no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientGone;

async fn carry_in(
    mut input: impl AsyncBufRead + Unpin,
    mut to_server: DuplexStream,
    answers: mpsc::Sender<Value>,
    calls: UnansweredCalls,
) -> std::io::Result<()> {
    // A message may contain a secret for a job's stdin.
    let mut line = Zeroizing::new(Vec::new());
    while read_line(&mut input, &mut line).await? {
        match read_message(&line) {
            Ok(message) => {
                let mut refusal = None;
                match (&message["method"], &message["id"]) {
                    (Value::String(method), _) if method == "notifications/cancelled" => {
                        // A cancelled call may get no answer that would end it.
                        calls.end(&message["params"]["requestId"]);
                    }
                    (Value::String(method), id @ (Value::String(_) | Value::Number(_))) => {
                        refusal = wrong_params(method, &message["params"])
                            .map(|why| error_answer(id.clone(), INVALID_PARAMS, &why));
                        if refusal.is_none() {
                            // Before the server gets the call, so that its answer can't come first.
                            calls.begin(id, line.len()).await;
                        }
                    }
                    _ => {}
                }
                wipe(message);
                match refusal {
                    None => {
                        // The last line may end without one, and rmcp would not read it.
                        if !line.ends_with(b"\n") {
                            line.push(b'\n');
                        }
                        to_server.write_all(&line).await?;
                    }
                    // If answers are not written any more, no client waits for them.
                    Some(answer) => drop(answers.send(answer).await),
                }
            }
            Err((code, message)) => {
                tracing::warn!(message, "a line of stdin was not a message");
                let answer = error_answer(readable_id(&line), code, &message);
                answers.send(answer).await.ok();
            }
        }
    }
    Ok(())
}

fn error_answer(id: Value, code: i32, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

/// The mistake in the parameters of a request, if there is one. rmcp answers such a request without its id, or as if its method
/// were unknown.
fn wrong_params(method: &str, params: &Value) -> Option<String> {
    if !params.is_object() && !params.is_null() {
        return Some("params must be an object".to_owned());
    }
    let required = match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => Some("uri"),
        _ => None,
    };
    if let Some(name) = required
        && !params[name].is_string()
    {
        return Some(format!("{method} needs params.{name}, a string"));
    }
    let arguments = &params["arguments"];
    if !arguments.is_object() && !arguments.is_null() {
        return Some("params.arguments must be an object".to_owned());
    }
    None
}

/// Reads a line, or only the start of an overlong one. Returns false at the end.
async fn read_line<R: AsyncBufRead + Unpin>(
    input: &mut R,
    line: &mut Vec<u8>,
) -> std::io::Result<bool> {
    line.clear();
    input.take(LONGEST_MESSAGE as u64 + 1).read_until(b'\n', line).await?;
    // Discards the rest of an overlong line, so that the next read starts at a line.
    let mut rest = Vec::new();
    while line.len() > LONGEST_MESSAGE && !line.ends_with(b"\n") && !rest.ends_with(b"\n") {
        rest.clear();
        if input.take(PIPE_BYTES as u64).read_until(b'\n', &mut rest).await? == 0 {
            break;
        }
    }
    Ok(!line.is_empty())
}

/// Parses the message on a line; null for an empty one. The error has JSON-RPC's code and the
/// reason.
fn read_message(line: &[u8]) -> Result<Value, (i32, String)> {
    if line.len() > LONGEST_MESSAGE {
        return Err((
            INVALID_REQUEST,
            format!("a message may have {LONGEST_MESSAGE} bytes at most"),
        ));
    }
    if line.trim_ascii().is_empty() {
        return Ok(Value::Null);
    }
    // serde's message may quote the line, except its category.
    serde_json::from_slice(line).map_err(|error| {
        (
            PARSE_ERROR,
            format!(
                "this line is not JSON: {:?} error at column {}",
                error.classify(),
                error.column()
            ),
        )
    })
}

/// Wipes a message from memory.
fn wipe(message: Value) {
    match message {
        Value::String(mut text) => text.zeroize(),
        Value::Array(items) => items.into_iter().for_each(wipe),
        Value::Object(fields) => fields.into_iter().for_each(|(_, value)| wipe(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The id of a broken message, if it can be read unambiguously.
fn readable_id(line: &[u8]) -> Value {
    static ID: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r#""id"\s*:\s*(-?[0-9]{1,18}|"[A-Za-z0-9_.:-]{1,100}")"#)
            .expect("it is a regular expression")
    });
    let mut ids = ID.captures_iter(line);
    match (ids.next(), ids.next()) {
        (Some(id), None) => serde_json::from_slice(&id[1]).unwrap_or(Value::Null),
        _ => Value::Null,
    }
}

async fn carry_out(
    mut from_server: impl AsyncBufRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
    mut answers: mpsc::Receiver<Value>,
    calls: UnansweredCalls,
) -> std::io::Result<()> {
    let mut line = Vec::new();
    loop {
        // `line` keeps the part of a line that was read when an answer comes in between.
        tokio::select! {
            read = from_server.read_until(b'\n', &mut line) => {
                if read? == 0 && line.is_empty() {
                    return Ok(());
                }
                output.write_all(&line).await?;
                output.flush().await?;
                // After the flush: a client that reads no answers can't send more calls.
                if let Ok(Envelope { id: Some(id), method: None }) = serde_json::from_slice(&line) {
                    calls.end(&id);
                }
                line.clear();
            }
            Some(answer) = answers.recv() => {
                output.write_all(format!("{answer}\n").as_bytes()).await?;
                output.flush().await?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_lines_are_reported_and_others_pass() {
        for line in [
            &b"{}\n"[..],
            b"[1]\n",
            b"\n",
            b"  \n",
            br#"{"a":"\ud83d\ude00"}"#,
        ] {
            assert!(
                read_message(line).is_ok(),
                "{:?}",
                String::from_utf8_lossy(line)
            );
        }
        for line in [
            &b"not json\n"[..],
            b"{,}\n",
            b"\"\xff\"\n",
            br#"{"a":"\ud800"}"#,
            "[".repeat(500).as_bytes(),
        ] {
            assert_eq!(
                read_message(line).unwrap_err().0,
                -32700,
                "{:?}",
                String::from_utf8_lossy(line)
            );
        }
        assert_eq!(
            read_message(&vec![b' '; LONGEST_MESSAGE + 1]).unwrap_err().0,
            -32600
        );
        let (_, told) = read_message(br#"{"data": "hunter2", }"#).unwrap_err();
        assert!(!told.contains("hunter2"), "{told}");
    }

    #[test]
    fn wrong_parameters_are_named() {
        let wrong = |method: &str, params: &str| {
            wrong_params(method, &serde_json::from_str(params).unwrap()).unwrap_or_default()
        };
        for (method, params) in [
            ("ping", "null"),
            ("tools/list", "{}"),
            ("tools/call", r#"{"name":"ssh_run"}"#),
            ("tools/call", r#"{"name":"ssh_run","arguments":{}}"#),
            ("resources/read", r#"{"uri":"ssh-job://a"}"#),
        ] {
            assert_eq!(wrong(method, params), "", "{method} {params}");
        }
        for (method, params, told) in [
            ("ping", "[]", "params must be an object"),
            ("tools/call", "null", "params.name"),
            ("tools/call", r#"{"name":5}"#, "params.name"),
            (
                "tools/call",
                r#"{"name":"a","arguments":[1]}"#,
                "params.arguments",
            ),
            ("resources/read", "{}", "params.uri"),
        ] {
            assert!(wrong(method, params).contains(told), "{method} {params}");
        }
    }

    #[tokio::test]
    async fn a_request_with_wrong_parameters_is_answered_with_its_id() {
        let wire = Wire::new();
        let (client, output) = duplex(1 << 20);
        let input = &br#"{"id":5,"method":"tools/call","params":[]}"#[..];
        let (carry_in, carry_out, server) = wire.into_parts(input, output);
        let mut answers = BufReader::new(client).lines();
        let answer = tokio::select! {
            _ = async { tokio::join!(carry_in, carry_out) } => unreachable!("the server has not ended"),
            answer = answers.next_line() => answer.unwrap().unwrap(),
        };
        drop(server);
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&json!(5), &json!(-32602))
        );
    }

    #[test]
    fn an_id_is_read_only_when_it_cannot_be_mistaken() {
        assert_eq!(readable_id(br#"{"id": 7, "method": "x", }"#), 7);
        assert_eq!(readable_id(br#"{"id":"a-1","x":"\ud800"}"#), "a-1");
        assert_eq!(readable_id(br#"{"id":7,"params":{"id":8},}"#), Value::Null);
        assert_eq!(readable_id(b"nothing"), Value::Null);
    }

    #[tokio::test]
    async fn answers_stand_between_the_lines_of_the_server() {
        let wire = Wire::new();
        let long = "x".repeat(LONGEST_MESSAGE + 100);
        let input = format!("{{\"id\":1}}\n{{\"id\":2,}}\n{long}\n{{\"id\":3}}");
        let (mut client, output) = duplex(1 << 20);
        let (carry_in, carry_out, (mut reads, mut writes)) =
            wire.into_parts(input.as_bytes(), output);
        let server = async move {
            let mut got = String::new();
            reads.read_to_string(&mut got).await.unwrap();
            assert_eq!(got, "{\"id\":1}\n{\"id\":3}\n");
            writes.write_all(b"half a ").await.unwrap();
            tokio::task::yield_now().await;
            writes.write_all(b"line\n").await.unwrap();
        };
        tokio::join!(server, carry_out, carry_in).1.unwrap();
        let mut told = String::new();
        client.read_to_string(&mut told).await.unwrap();
        let mut lines: Vec<&str> = told.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines.len(), 3, "{told}");
        assert_eq!(lines[0], "half a line");
        assert!(
            told.contains("\"id\":2") && told.contains("-32700") && told.contains("-32600"),
            "{told}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_not_read_from_without_end() {
        let call = |id: usize| format!("{{\"id\":{id},\"method\":\"ping\"}}\n");
        let input: String = (0..MOST_CALLS * 3).map(call).collect();
        let (client, output) = duplex(64);
        let (carry_in, carry_out, (reads, mut writes)) =
            Wire::new().into_parts(input.as_bytes(), output);
        let mut lines = BufReader::new(reads).lines();
        let mut seen = 0;
        let server = async {
            let silence = std::time::Duration::from_secs(1);
            while let Ok(Ok(Some(_))) = tokio::time::timeout(silence, lines.next_line()).await {
                seen += 1;
            }
            assert_eq!(seen, MOST_CALLS, "no more calls are read than may wait");
            // Answers that are read make room again, and so does a call that is cancelled.
            let reading = BufReader::new(client).lines();
            let answering = async {
                for id in 0..10 {
                    writes
                        .write_all(format!("{{\"id\":{id},\"result\":{{}}}}\n").as_bytes())
                        .await
                        .unwrap();
                }
                std::future::pending::<()>().await;
            };
            let taking = async {
                let mut reading = reading;
                for _ in 0..10 {
                    reading.next_line().await.unwrap();
                    lines.next_line().await.unwrap();
                }
                assert!(tokio::time::timeout(silence, lines.next_line()).await.is_err());
            };
            tokio::select! { () = answering => {}, () = taking => {} }
        };
        tokio::select! {
            () = server => {}
            _ = carry_out => unreachable!("the server has not ended"),
            () = carry_in => unreachable!("it waits for ever"),
        }
    }
}

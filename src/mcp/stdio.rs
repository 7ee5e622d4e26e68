use std::collections::HashMap;
use std::future::pending;
use std::sync::LazyLock;

use regex::bytes::Regex;
use secrecy::zeroize::{Zeroize, Zeroizing};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream, duplex,
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// The longest message a client may send, in bytes.
const LONGEST_MESSAGE: usize = 8 << 20;
const PIPE_BYTES: usize = 64 << 10;
/// Most answers of our own that wait to be written.
const ANSWERS: usize = 64;
/// Most calls in flight, and most bytes of them; then no more are read.
const MOST_CALLS: usize = 128;
const MOST_CALL_BYTES: usize = 32 << 20;

/// The calls that were read, and whose answers are not written yet, by their ids; with their sizes.
#[derive(Clone, Debug, Default)]
struct Calls(watch::Sender<HashMap<String, usize>>);

impl Calls {
    /// Takes a call in, once there is room for it.
    async fn begin(&self, id: &Value, bytes: usize) {
        let has_room = |calls: &HashMap<String, usize>| {
            let total: usize = calls.values().sum();
            calls.is_empty() || (calls.len() < MOST_CALLS && total + bytes <= MOST_CALL_BYTES)
        };
        // We hold the sender.
        drop(self.0.subscribe().wait_for(has_room).await);
        self.0.send_modify(|calls| _ = calls.insert(id.to_string(), bytes));
    }

    /// A call has its answer, or wants none any more.
    fn end(&self, id: &Value) {
        self.0.send_if_modified(|calls| calls.remove(&id.to_string()).is_some());
    }
}

/// What of a message tells whether it is a call, an answer or neither.
#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    id: Option<Value>,
    #[serde(default)]
    method: Option<IgnoredAny>,
}

/// The two ends of a wire between a client and rmcp, which drops lines that are not JSON in silence, so that the caller
/// waits for ever. Here each gets its answer.
pub(super) struct Wire {
    /// For rmcp to read from and to write to.
    pub(super) server: (DuplexStream, DuplexStream),
    to_server: DuplexStream,
    from_server: DuplexStream,
    answers: (mpsc::Sender<Value>, mpsc::Receiver<Value>),
}

impl Wire {
    pub(super) fn new() -> Self {
        let (to_server, server_reads) = duplex(PIPE_BYTES);
        let (server_writes, from_server) = duplex(PIPE_BYTES);
        let answers = mpsc::channel(ANSWERS);
        Self { server: (server_reads, server_writes), to_server, from_server, answers }
    }

    /// Takes the wire apart: what carries the client's messages in until `ended` (then it waits for ever), what carries the
    /// server's out until it has said its last, and the server's ends.
    pub(super) fn into_parts(
        self,
        input: impl tokio::io::AsyncRead + Unpin,
        output: impl AsyncWrite + Unpin,
        ended: CancellationToken,
    ) -> (impl Future<Output = ()>, impl Future<Output = Carried>, (DuplexStream, DuplexStream)) {
        let (sender, receiver) = self.answers;
        let calls = Calls::default();
        let answered = calls.clone();
        let carry_in = async move {
            if let Err(error) = carry_in(BufReader::new(input), self.to_server, sender, calls).await {
                tracing::debug!(%error, "stdin can't be read any further");
            }
            ended.cancel();
            pending().await
        };
        let carry_out = async move {
            if let Err(error) = carry_out(BufReader::new(self.from_server), output, receiver, answered).await
            {
                tracing::debug!(%error, "stdout can't be written any further");
                return Carried::NoFurther;
            }
            Carried::All
        };
        (carry_in, carry_out, self.server)
    }
}

/// How far the server's messages were carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carried {
    /// To the last.
    All,
    /// Not to their end: nobody takes them any more.
    NoFurther,
}

async fn carry_in(
    mut input: impl AsyncBufRead + Unpin,
    mut to_server: DuplexStream,
    answers: mpsc::Sender<Value>,
    calls: Calls,
) -> std::io::Result<()> {
    // What is written to a job's stdin may be a secret.
    let mut line = Zeroizing::new(Vec::new());
    while read_line(&mut input, &mut line).await? {
        match read_message(&line) {
            Ok(message) => {
                match (&message["method"], &message["id"]) {
                    (Value::String(method), _) if method == "notifications/cancelled" => {
                        calls.end(&message["params"]["requestId"]);
                    }
                    (Value::String(_), id @ (Value::String(_) | Value::Number(_))) => {
                        calls.begin(id, line.len()).await;
                    }
                    _ => {}
                }
                wipe(message);
                to_server.write_all(&line).await?;
            }
            Err((code, message)) => {
                tracing::warn!(message, "a line of stdin was no message");
                let error = json!({"code": code, "message": message});
                let answer = json!({"jsonrpc": "2.0", "id": readable_id(&line), "error": error});
                // When nobody writes answers any more, nobody waits for them.
                answers.send(answer).await.ok();
            }
        }
    }
    Ok(())
}

/// Reads a line, of an over-long one only the beginning; false at the end.
async fn read_line(input: &mut (impl AsyncBufRead + Unpin), line: &mut Vec<u8>) -> std::io::Result<bool> {
    line.clear();
    input.take(LONGEST_MESSAGE as u64 + 1).read_until(b'\n', line).await?;
    let mut rest = Vec::new();
    while line.len() > LONGEST_MESSAGE && !line.ends_with(b"\n") && !rest.ends_with(b"\n") {
        rest.clear();
        if input.take(PIPE_BYTES as u64).read_until(b'\n', &mut rest).await? == 0 {
            break;
        }
    }
    Ok(!line.is_empty())
}

/// The message on a line; null on an empty one. Else why it is none, with JSON-RPC's code for it.
fn read_message(line: &[u8]) -> Result<Value, (i32, String)> {
    if line.len() > LONGEST_MESSAGE {
        return Err((-32600, format!("a message may have {LONGEST_MESSAGE} bytes at most")));
    }
    if line.trim_ascii().is_empty() {
        return Ok(Value::Null);
    }
    // What serde says beyond its category may quote the message.
    serde_json::from_slice(line).map_err(|error| {
        (-32700, format!("this line is not JSON: {:?} error at column {}", error.classify(), error.column()))
    })
}

/// Leaves no copy of a message behind.
fn wipe(message: Value) {
    match message {
        Value::String(mut text) => text.zeroize(),
        Value::Array(items) => items.into_iter().for_each(wipe),
        Value::Object(fields) => fields.into_iter().for_each(|(_, value)| wipe(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The id of a broken message, if there is one that can't be mistaken.
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
    calls: Calls,
) -> std::io::Result<()> {
    let mut line = Vec::new();
    loop {
        // `line` keeps what was read of a line when an answer comes in between.
        tokio::select! {
            read = from_server.read_until(b'\n', &mut line) => {
                if read? == 0 && line.is_empty() {
                    return Ok(());
                }
                output.write_all(&line).await?;
                output.flush().await?;
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
    fn broken_lines_are_told_and_others_pass() {
        for line in [&b"{}\n"[..], b"[1]\n", b"\n", b"  \n", br#"{"a":"\ud83d\ude00"}"#] {
            assert!(read_message(line).is_ok(), "{:?}", String::from_utf8_lossy(line));
        }
        for line in
            [&b"not json\n"[..], b"{,}\n", b"\"\xff\"\n", br#"{"a":"\ud800"}"#, "[".repeat(500).as_bytes()]
        {
            assert_eq!(read_message(line).unwrap_err().0, -32700, "{:?}", String::from_utf8_lossy(line));
        }
        assert_eq!(read_message(&vec![b' '; LONGEST_MESSAGE + 1]).unwrap_err().0, -32600);
        let (_, told) = read_message(br#"{"data": "hunter2", }"#).unwrap_err();
        assert!(!told.contains("hunter2"), "{told}");
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
        let ended = CancellationToken::new();
        let (carry_in, carry_out, (mut reads, mut writes)) =
            wire.into_parts(input.as_bytes(), output, ended.clone());
        let server = async move {
            let mut got = String::new();
            reads.read_to_string(&mut got).await.unwrap();
            assert_eq!(got, "{\"id\":1}\n{\"id\":3}");
            writes.write_all(b"half a ").await.unwrap();
            tokio::task::yield_now().await;
            writes.write_all(b"line\n").await.unwrap();
        };
        tokio::select! {
            _ = async { tokio::join!(server, carry_out) } => {}
            () = carry_in => unreachable!("it waits for ever"),
        }
        assert!(ended.is_cancelled());
        let mut told = String::new();
        client.read_to_string(&mut told).await.unwrap();
        let mut lines: Vec<&str> = told.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines.len(), 3, "{told}");
        assert_eq!(lines[0], "half a line");
        assert!(told.contains("\"id\":2") && told.contains("-32700") && told.contains("-32600"), "{told}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_not_read_from_without_end() {
        let call = |id: usize| format!("{{\"id\":{id},\"method\":\"tools/call\"}}\n");
        let input: String = (0..MOST_CALLS * 3).map(call).collect();
        let (client, output) = duplex(64);
        let (carry_in, carry_out, (reads, mut writes)) =
            Wire::new().into_parts(input.as_bytes(), output, CancellationToken::new());
        let (mut lines, mut seen) = (BufReader::new(reads).lines(), 0);
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
                    writes.write_all(format!("{{\"id\":{id},\"result\":{{}}}}\n").as_bytes()).await.unwrap();
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

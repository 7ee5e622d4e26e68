use std::future::pending;
use std::sync::LazyLock;

use regex::bytes::Regex;
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream, duplex,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The longest message a client may send, in bytes.
const LONGEST_MESSAGE: usize = 8 << 20;
const PIPE_BYTES: usize = 64 << 10;
/// How many answers of our own may wait to be written.
const ANSWERS: usize = 64;

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
    ) -> (impl Future<Output = ()>, impl Future<Output = ()>, (DuplexStream, DuplexStream)) {
        let (sender, receiver) = self.answers;
        let carry_in = async move {
            if let Err(error) = carry_in(BufReader::new(input), self.to_server, sender).await {
                tracing::debug!(%error, "stdin can't be read any further");
            }
            ended.cancel();
            pending().await
        };
        let carry_out = async move {
            if let Err(error) = carry_out(BufReader::new(self.from_server), output, receiver).await {
                tracing::debug!(%error, "stdout can't be written any further");
            }
        };
        (carry_in, carry_out, self.server)
    }
}

async fn carry_in(
    mut input: impl AsyncBufRead + Unpin,
    mut to_server: DuplexStream,
    answers: mpsc::Sender<Value>,
) -> std::io::Result<()> {
    let mut line = Vec::new();
    while read_line(&mut input, &mut line).await? {
        match problem(&line) {
            None => to_server.write_all(&line).await?,
            Some((code, message)) => {
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

/// Why a line is no message at all, with JSON-RPC's code for it.
fn problem(line: &[u8]) -> Option<(i32, String)> {
    if line.len() > LONGEST_MESSAGE {
        return Some((-32600, format!("a message may have {LONGEST_MESSAGE} bytes at most")));
    }
    if line.trim_ascii().is_empty() {
        return None;
    }
    let error = serde_json::from_slice::<Value>(line).err()?;
    // What serde says beyond its category may quote the message.
    Some((
        -32700,
        format!("this line is not JSON: {:?} error at column {}", error.classify(), error.column()),
    ))
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
                line.clear();
            }
            Some(answer) = answers.recv() => output.write_all(format!("{answer}\n").as_bytes()).await?,
        }
        output.flush().await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_lines_are_told_and_others_pass() {
        for line in [&b"{}\n"[..], b"[1]\n", b"\n", b"  \n", br#"{"a":"\ud83d\ude00"}"#] {
            assert_eq!(problem(line), None, "{:?}", String::from_utf8_lossy(line));
        }
        for line in
            [&b"not json\n"[..], b"{,}\n", b"\"\xff\"\n", br#"{"a":"\ud800"}"#, "[".repeat(500).as_bytes()]
        {
            assert_eq!(problem(line).unwrap().0, -32700, "{:?}", String::from_utf8_lossy(line));
        }
        assert_eq!(problem(&vec![b' '; LONGEST_MESSAGE + 1]).unwrap().0, -32600);
        let (_, told) = problem(br#"{"data": "hunter2", }"#).unwrap();
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
}

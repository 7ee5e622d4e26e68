//! A one-answer web server on the loopback interface, for clients on this machine.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use secrecy::SecretString;
use secrecy::zeroize::Zeroizing;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::answer_form::{
    AnswerForm, HEADERS, LONGEST_REQUEST, NOTHING_HERE, OTHER_QUESTION, THANKS, document,
    unguessable,
};
use sshjobs_core::jobs::Question;

/// A page on the loopback interface for one answer of a person. Its address can't be guessed. It
/// exists only while a login waits for the answer, and reveals nothing.
pub(crate) struct LoopbackPage {
    listener: TcpListener,
    address: SocketAddr,
    token: String,
    form: AnswerForm,
}

/// Time limit for the head of a request: it contains the secret path, so strangers are cut off
/// early.
const HEAD_TIMEOUT: Duration = Duration::from_secs(1);
/// Time limit for a whole request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum connections served at the same time.
const CONNECTIONS: usize = 64;

/// A browser's request.
#[derive(Debug, PartialEq, Eq)]
enum BrowserRequest {
    Page,
    /// The answer is in the body: this many bytes, starting here.
    Answer {
        body: usize,
        length: usize,
    },
    SomethingElse,
}

impl LoopbackPage {
    /// Opens a page on a random port of 127.0.0.1. Dropping it closes the page.
    pub(crate) async fn open() -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        Ok(Self {
            listener,
            address,
            token: unguessable(),
            form: AnswerForm::new(),
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/{}", self.address, self.token)
    }

    /// Serves the question to anyone with the address, until it is answered. Cancel safe.
    pub(crate) async fn answer(&self, question: &Question) -> io::Result<SecretString> {
        let mut serving = FuturesUnordered::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if serving.len() < CONNECTIONS => {
                    let (stream, _) = accepted?;
                    serving.push(timeout(REQUEST_TIMEOUT, self.serve(stream, question)));
                }
                // A browser that stalls or disconnects may return.
                Some(served) = serving.next() => {
                    if let Ok(Ok(Some(answer))) = served {
                        return Ok(answer);
                    }
                }
            }
        }
    }

    async fn serve(
        &self,
        mut stream: TcpStream,
        question: &Question,
    ) -> io::Result<Option<SecretString>> {
        // With room for a usual request: a Vec that grows leaves a copy that is not wiped.
        let mut request = Zeroizing::new(Vec::with_capacity(LONGEST_REQUEST));
        let head = async {
            loop {
                if request.len() >= LONGEST_REQUEST || stream.read_buf(&mut *request).await? == 0 {
                    return Ok::<_, io::Error>(BrowserRequest::SomethingElse);
                }
                if let Some(asked) = self.parse(&request) {
                    return Ok(asked);
                }
            }
        };
        match timeout(HEAD_TIMEOUT, head).await?? {
            BrowserRequest::Page => {
                respond(&mut stream, "200 OK", &self.form.page(question)).await?
            }
            BrowserRequest::SomethingElse => {
                respond(&mut stream, "404 Not Found", NOTHING_HERE).await?
            }
            BrowserRequest::Answer { body, length } => {
                while request.len() < body + length {
                    if stream.read_buf(&mut *request).await? == 0 {
                        return Ok(None);
                    }
                }
                let Some(answer) = self.form.answer_in(&request[body..body + length]) else {
                    respond(&mut stream, "403 Forbidden", OTHER_QUESTION).await?;
                    return Ok(None);
                };
                // First, because the return ends the page and this connection.
                respond(&mut stream, "200 OK", THANKS).await?;
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    /// `None` while the head of the request is incomplete. A request with a wrong path, or from
    /// another name or page, gets an empty response.
    fn parse(&self, request: &[u8]) -> Option<BrowserRequest> {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut parsed = httparse::Request::new(&mut headers);
        let head = match parsed.parse(request) {
            Ok(httparse::Status::Complete(head)) => head,
            Ok(httparse::Status::Partial) => return None,
            Err(_) => return Some(BrowserRequest::SomethingElse),
        };
        let here = self.address.to_string();
        let own_origin = format!("http://{here}");
        let is_ours = parsed.path.and_then(|path| path.strip_prefix('/'))
            == Some(self.token.as_str())
            // A page that uses DNS rebinding sends its own name.
            && header(&parsed, "host") == Some(here.as_str())
            && header(&parsed, "origin").is_none_or(|origin| origin == own_origin);
        let length = header(&parsed, "content-length")
            .and_then(|length| length.parse().ok())
            .unwrap_or(0);
        Some(match parsed.method {
            Some("GET") if is_ours => BrowserRequest::Page,
            Some("POST") if is_ours && length <= LONGEST_REQUEST => {
                BrowserRequest::Answer { body: head, length }
            }
            _ => BrowserRequest::SomethingElse,
        })
    }
}

async fn respond(stream: &mut TcpStream, status: &str, body: &str) -> io::Result<()> {
    let page = document(body);
    let mut head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n",
        page.len()
    );
    for (name, value) in HEADERS {
        head.extend([name, ": ", value, "\r\n"]);
    }
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(b"\r\n").await?;
    stream.write_all(page.as_bytes()).await?;
    stream.shutdown().await
}

fn header<'a>(request: &httparse::Request<'_, 'a>, name: &str) -> Option<&'a str> {
    let found = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
    std::str::from_utf8(found.value).ok()
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    fn question() -> Question {
        Question {
            host: "web1".into(),
            text: "<b>Password</b>: ".into(),
            echo: false,
        }
    }

    async fn send(page: &LoopbackPage, request: &str) -> String {
        let mut stream = TcpStream::connect(page.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn a_person_answers_on_the_page() {
        let page = LoopbackPage::open().await.unwrap();
        let path = page.token.clone();
        let host = page.address;
        let asking = async {
            let shown = send(
                &page,
                &format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            )
            .await;
            assert!(
                shown.contains("&lt;b&gt;Password&lt;/b&gt;") && shown.contains("type=password"),
                "{shown}"
            );
            assert!(
                shown.contains("http-equiv=refresh") && !shown.contains("<script"),
                "{shown}"
            );
            let body = format!("form={}&answer=p%26ss+w%C3%B6rd", page.form.nonce());
            let head =
                format!("POST /{path} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n");
            send(
                &page,
                &format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()),
            )
            .await
        };
        let question = question();
        let (answer, thanks) = tokio::join!(page.answer(&question), asking);
        assert_eq!(answer.unwrap().expose_secret(), "p&ss wörd");
        assert!(thanks.contains("Thank you"));
    }

    #[tokio::test]
    async fn an_answer_to_a_form_of_another_origin_is_ignored() {
        let page = LoopbackPage::open().await.unwrap();
        let path = page.token.clone();
        let host = page.address;
        let asking = async {
            for body in ["answer=x", "form=0&answer=x"] {
                let head = format!("POST /{path} HTTP/1.1\r\nHost: {host}\r\n");
                let told = send(
                    &page,
                    &format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()),
                )
                .await;
                assert!(told.starts_with("HTTP/1.1 403"), "{told}");
            }
        };
        let question = question();
        tokio::select! {
            answer = page.answer(&question) => panic!("answered: {answer:?}"),
            () = asking => {}
        }
    }

    #[tokio::test]
    async fn connections_that_ask_nothing_do_not_keep_a_person_waiting() {
        let page = LoopbackPage::open().await.unwrap();
        let path = page.token.clone();
        let host = page.address;
        let asking = async {
            let mut idle = Vec::new();
            for _ in 0..30 {
                idle.push(TcpStream::connect(host).await.unwrap());
            }
            let get = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            let shown =
                timeout(HEAD_TIMEOUT / 2, send(&page, &get)).await.expect("an answer at once");
            assert!(shown.contains("<form"), "{shown}");
        };
        let question = question();
        tokio::select! {
            answer = page.answer(&question) => panic!("answered: {answer:?}"),
            () = asking => {}
        }
    }

    #[tokio::test]
    async fn other_clients_get_nothing() {
        let page = LoopbackPage::open().await.unwrap();
        let path = page.token.clone();
        let host = page.address;
        let asking = async {
            for request in [
                format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"),
                format!("GET /{path}x HTTP/1.1\r\nHost: {host}\r\n\r\n"),
                format!("GET /{path} HTTP/1.1\r\nHost: evil.example\r\n\r\n"),
                format!(
                    "POST /{path} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://evil\r\nContent-Length: 8\r\n\r\nanswer=x"
                ),
                format!(
                    "POST /{path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 99999999999\r\n\r\nanswer=x"
                ),
                format!(
                    "POST /{path}x HTTP/1.1\r\nHost: {host}\r\nContent-Length: 8\r\n\r\nanswer=x"
                ),
                "\0\r\n\r\n".to_owned(),
            ] {
                let answer = send(&page, &request).await;
                assert!(
                    answer.starts_with("HTTP/1.1 404"),
                    "{request:?}: {answer:?}"
                );
            }
        };
        let question = question();
        tokio::select! {
            answer = page.answer(&question) => panic!("answered: {answer:?}"),
            () = asking => {}
        }
    }
}

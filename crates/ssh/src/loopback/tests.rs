//! Tests of connections, also to a hostile server.

use std::time::Duration;

use russh::{Channel, ChannelOpenFailure};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::*;
use crate::connection::MOST_CLOSED_FIRST;
use crate::{ChannelError, ConnectError, LoginSecrets, connect};

/// Number of channels that the server opens of each of the seven kinds.
const TIMES: usize = 143;
/// Time limit for each test.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that opens channels as soon as a client has logged in.
struct Opener {
    report: Option<oneshot::Sender<Vec<Opened>>>,
    opening: JoinSet<Option<()>>,
}

type Opened = Result<Channel<Msg>, russh::Error>;

impl server::Handler for Opener {
    type Error = russh::Error;

    async fn auth_publickey(
        &mut self,
        _user: &str,
        _key: VerifiedPublicKey<'_>,
    ) -> Result<Auth, russh::Error> {
        Ok(Auth::Accept)
    }

    async fn auth_succeeded(&mut self, session: &mut Session) -> Result<(), russh::Error> {
        let report = self.report.take().expect("a client logs in once");
        let handle = session.handle();
        self.opening
            .spawn(async move { report.send(open_all_kinds(&handle).await).ok() });
        Ok(())
    }

    async fn channel_open_session(
        &mut self,
        _channel: Channel<Msg>,
        reply: server::ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), russh::Error> {
        reply.accept().await;
        Ok(())
    }
}

async fn open_all_kinds(handle: &Handle) -> Vec<Opened> {
    let mut opened = Vec::new();
    for _ in 0..TIMES {
        opened.push(handle.channel_open_session().await);
        opened.push(handle.channel_open_agent().await);
        opened.push(handle.channel_open_x11("127.0.0.1", 6000).await);
        opened.push(handle.channel_open_direct_tcpip("127.0.0.1", 22, "127.0.0.1", 1).await);
        opened.push(handle.channel_open_direct_streamlocal("/run/a.sock").await);
        opened.push(handle.channel_open_forwarded_tcpip("127.0.0.1", 22, "127.0.0.1", 1).await);
        opened.push(handle.channel_open_forwarded_streamlocal("/run/a.sock").await);
    }
    opened
}

/// A server that hangs up when a client logs in.
struct HangsUp;

impl server::Handler for HangsUp {
    type Error = russh::Error;

    async fn auth_publickey(
        &mut self,
        _user: &str,
        _key: VerifiedPublicKey<'_>,
    ) -> Result<Auth, russh::Error> {
        Err(russh::Error::HUP)
    }
}

/// A server that accepts one connection.
async fn server_with(handler: impl server::Handler + Send + 'static) -> LoopbackServer {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let host_key = new_key().unwrap();
    let user_key = new_key().unwrap();
    let directory = tempfile::tempdir().unwrap();
    write_keys(directory.path(), address.port(), &host_key, &user_key).unwrap();
    let config = Arc::new(server::Config {
        keys: vec![host_key],
        ..server::Config::default()
    });
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let Ok(running) = server::run_stream(config, socket, handler).await else {
            panic!("the handshake fails")
        };
        running.await.ok();
    });
    LoopbackServer {
        address,
        directory,
        _tasks: tasks,
    }
}

#[tokio::test]
async fn channels_that_a_server_opens_unasked_are_refused() {
    let (report, reported) = oneshot::channel();
    let server = server_with(Opener {
        report: Some(report),
        opening: JoinSet::new(),
    })
    .await;
    let connection = connect(&server.host_config("web1"), None, &LoginSecrets::default())
        .await
        .unwrap();

    let opened = timeout(PATIENCE, reported).await.unwrap().unwrap();

    assert_eq!(opened.len(), 7 * TIMES);
    for channel in opened {
        let error = channel.map(|channel| channel.id()).unwrap_err();
        let refused =
            russh::Error::ChannelOpenFailure(ChannelOpenFailure::AdministrativelyProhibited);
        assert_eq!(error.to_string(), refused.to_string());
    }
    let own = timeout(PATIENCE, connection.open()).await.unwrap();
    assert!(own.is_ok(), "the client may open channels as before");
}

#[tokio::test]
async fn a_write_that_waits_for_the_window_ends_with_the_connection() {
    /// Time in which the window and all buffers on the way are filled.
    const FILLED_WITHIN: Duration = Duration::from_millis(500);

    let server = LoopbackServer::start().await.unwrap();
    let connection = connect(&server.host_config("web1"), None, &LoginSecrets::default())
        .await
        .unwrap();
    let channel = connection.open().await.unwrap();
    let (_reader, writer) = channel.exec("sleep 1000").await.unwrap();
    let mut writing = Box::pin(async {
        loop {
            if let Err(error) = writer.write(&[0; 32 << 10]).await {
                return error;
            }
        }
    });
    let filling = timeout(FILLED_WITHIN, &mut writing).await;
    assert!(filling.is_err(), "the command reads nothing");

    connection.disconnect().await;

    let error = timeout(PATIENCE, writing).await.expect("the write ends");
    assert!(matches!(error, ChannelError::ConnectionLost), "{error}");
}

#[tokio::test]
async fn russh_keeps_nothing_of_a_program_that_ended_with_its_stdin() {
    let server = LoopbackServer::start().await.unwrap();
    let connection = connect(&server.host_config("web1"), None, &LoginSecrets::default())
        .await
        .unwrap();
    let channel = connection.open().await.unwrap();
    let (mut reader, writer) = channel.exec("cat").await.unwrap();

    writer.end(&mut reader).await;

    // The record of a channel holds the sender of its events.
    let next = timeout(PATIENCE, reader.next()).await;
    assert_eq!(next.expect("the sender is dropped"), None);
}

#[tokio::test]
async fn a_connection_wears_out_by_channels_that_we_close_before_the_server() {
    let server = LoopbackServer::start().await.unwrap();
    let connection = connect(&server.host_config("web1"), None, &LoginSecrets::default())
        .await
        .unwrap();
    let start = async || connection.open().await.unwrap().exec("cat").await.unwrap();

    for _ in 0..MOST_CLOSED_FIRST - 1 {
        let (_reader, writer) = start().await;
        writer.close().await.unwrap();
    }
    let (mut reader, writer) = start().await;
    writer.eof().await.unwrap();
    timeout(PATIENCE, reader.closed()).await.expect("the server closes");
    // The server was first.
    writer.close().await.unwrap();
    assert!(!connection.is_worn_out());

    let (_reader, writer) = start().await;
    writer.close().await.unwrap();
    assert!(connection.is_worn_out());
}

#[tokio::test]
async fn a_server_that_hangs_up_during_the_login_has_refused_nothing() {
    let server = server_with(HangsUp).await;

    let connected = connect(&server.host_config("web1"), None, &LoginSecrets::default()).await;

    let error = connected.err().expect("the login fails");
    assert!(matches!(error, ConnectError::HungUp { .. }), "{error}");
}

//! Passes a session on to another replica: its messages, in both directions.

use axum::extract::ws;
use axum::extract::ws::WebSocket;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use super::header::PassedCaller;
use sshjobs_wire::{Error, Service, not_passed_on};

/// Both directions of a client's connection.
pub(crate) struct WebSocketClient<'a> {
    pub(crate) sink: &'a mut SplitSink<WebSocket, ws::Message>,
    pub(crate) stream: &'a mut SplitStream<WebSocket>,
}

/// Passes on the session whose first message was `first`, until one side ends it.
///
/// # Errors
/// If the other replica can't be reached. Nothing was sent to the client then.
pub(crate) async fn pass_on_session(
    service: &Service,
    replica: &str,
    first: String,
    client: WebSocketClient<'_>,
) -> Result<(), Error> {
    let WebSocketClient { sink, stream } = client;
    let library = service.library();
    let Some(peers) = library.peers() else {
        return Err(not_passed_on(replica, &"there is no cluster"));
    };
    let peer = peers.connect(replica).await.map_err(|error| not_passed_on(replica, &error))?;
    let mut hello = "ws://replica/v1/session".into_client_request().expect("a constant URL");
    PassedCaller::of_service(service).write_to(hello.headers_mut());
    let (socket, _) = client_async(hello, peer)
        .await
        .map_err(|error| not_passed_on(replica, &error))?;
    let (mut outgoing, mut incoming) = socket.split();
    outgoing
        .send(Message::text(first))
        .await
        .map_err(|error| not_passed_on(replica, &error))?;

    let to_the_client = async {
        while let Some(Ok(message)) = incoming.next().await {
            let Some(message) = for_the_client(message) else { continue };
            if sink.send(message).await.is_err() {
                return;
            }
        }
        sink.close().await.ok();
    };
    let to_the_replica = async {
        while let Some(Ok(message)) = stream.next().await {
            let Some(message) = for_the_replica(message) else { continue };
            if outgoing.send(message).await.is_err() {
                break;
            }
        }
        outgoing.close().await.ok();
    };
    // Dropping the connection ends the session at the other replica.
    tokio::select! {
        () = to_the_client => {}
        () = to_the_replica => {}
    }
    Ok(())
}

/// A message of the other replica. `None` for one that belongs to the connection between replicas.
fn for_the_client(message: Message) -> Option<ws::Message> {
    match message {
        Message::Text(text) => Some(ws::Message::Text(text.as_str().into())),
        Message::Binary(bytes) => Some(ws::Message::Binary(bytes)),
        // The client's connection needs pings of its own, which reveal that the client is gone.
        Message::Ping(bytes) => Some(ws::Message::Ping(bytes)),
        Message::Close(_) => Some(ws::Message::Close(None)),
        Message::Pong(_) | Message::Frame(_) => None,
    }
}

/// A message of the client. `None` for one that belongs to the client's connection.
fn for_the_replica(message: ws::Message) -> Option<Message> {
    match message {
        ws::Message::Text(text) => Some(Message::text(text.as_str())),
        ws::Message::Binary(bytes) => Some(Message::Binary(bytes)),
        ws::Message::Close(_) => Some(Message::Close(None)),
        ws::Message::Ping(_) | ws::Message::Pong(_) => None,
    }
}

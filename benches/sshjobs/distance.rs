//! A server that is far away.

use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// A port behind which the server is away by this delay in each direction. (netem would be nearer
/// to the truth, but not every kernel has it.)
pub(crate) async fn far_away(port: u16, delay: Duration) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let far = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            near.set_nodelay(true).unwrap();
            server.set_nodelay(true).unwrap();
            let ((from_us, to_us), (from_server, to_server)) =
                (near.into_split(), server.into_split());
            tokio::spawn(late(from_us, to_server, delay));
            tokio::spawn(late(from_server, to_us, delay));
        }
    });
    far
}

/// Passes data on, each piece after the delay, whatever number is in transit.
async fn late(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration) {
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some((due, piece)) = receiver.recv().await {
            tokio::time::sleep_until(due).await;
            let piece: Vec<u8> = piece;
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
    });
    let mut piece = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut piece).await {
        let due = tokio::time::Instant::now() + delay;
        if sender.send((due, piece[..count].to_vec())).is_err() {
            return;
        }
    }
}

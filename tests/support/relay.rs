//! A relay to a server, such as NATS or an sshd, that can delay what it passes on, or stop passing it
//! on, as a network does that drops every packet.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// A relay. Its threads end with the process of the test.
pub struct Relay {
    port: u16,
    is_frozen: Arc<AtomicBool>,
}

/// How often a frozen connection looks whether it may go on.
const LOOK: Duration = Duration::from_millis(50);

impl Relay {
    /// To a server with this URL.
    pub fn to(url: &str) -> Self {
        Self::with_delay(url, Duration::ZERO)
    }

    /// To a server that is far away: what arrives is passed on after a delay, in each direction.
    pub fn with_delay(url: &str, delay: Duration) -> Self {
        let address = url.split_once("://").expect("a URL").1.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let is_frozen = Arc::new(AtomicBool::new(false));
        let frozen = Arc::clone(&is_frozen);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&address) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone(), to.try_clone());
                    let (Ok(from), Ok(to), frozen) = (from, to, Arc::clone(&frozen)) else {
                        continue;
                    };
                    std::thread::spawn(move || copy(from, to, &frozen, delay));
                }
            }
        });
        Self { port, is_frozen }
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// From now on passes nothing on, or again all that was sent meanwhile.
    pub fn freeze(&self, is_frozen: bool) {
        self.is_frozen.store(is_frozen, Relaxed);
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, is_frozen: &AtomicBool, delay: Duration) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        while is_frozen.load(Relaxed) {
            std::thread::park_timeout(LOOK);
        }
        std::thread::park_timeout(delay);
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    to.shutdown(Shutdown::Write).ok();
    from.shutdown(Shutdown::Read).ok();
}

//! A relay to a server, such as NATS or an sshd, that can delay data, stop passing it on, as a network
//! does that drops every packet, or reset its connections.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::libc::linger;
use nix::sys::socket::{setsockopt, sockopt};

use super::Sshd;

/// A relay. Its threads end with the process of the test.
pub struct Relay {
    port: u16,
    is_frozen: Arc<AtomicBool>,
    /// One switch for each connection, also for those that have ended.
    resets: Arc<Mutex<Vec<Arc<AtomicBool>>>>,
}

/// How often a connection looks whether it may continue, or is to be reset.
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
        let resets = Arc::new(Mutex::new(Vec::new()));
        let (frozen, known) = (Arc::clone(&is_frozen), Arc::clone(&resets));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&address) else { continue };
                let is_reset = Arc::new(AtomicBool::new(false));
                known.lock().unwrap().push(Arc::clone(&is_reset));
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { continue };
                    let (frozen, is_reset) = (Arc::clone(&frozen), Arc::clone(&is_reset));
                    std::thread::spawn(move || copy(from, to, &frozen, &is_reset, delay));
                }
            }
        });
        Self {
            port,
            is_frozen,
            resets,
        }
    }

    /// To a host, whose configuration then leads to the relay.
    pub fn before(sshd: &Sshd, delay: Duration) -> Self {
        let relay = Self::with_delay(&format!("tcp://127.0.0.1:{}", sshd.port()), delay);
        let port = relay.port();
        let config = std::fs::read_to_string(sshd.ssh_config()).expect("a configuration");
        let config = config.replace(&format!("Port {}", sshd.port()), &format!("Port {port}"));
        std::fs::write(sshd.ssh_config(), config).expect("it can be written");
        let public = std::fs::read_to_string(sshd.path("host.pub")).expect("a host key");
        sshd.write_known_hosts(&format!("[127.0.0.1]:{port} {public}"));
        relay
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// The port on which it listens, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on passes nothing on, or again all that was sent meanwhile.
    pub fn freeze(&self, is_frozen: bool) {
        self.is_frozen.store(is_frozen, Relaxed);
    }

    /// Resets all connections (RST): data on its way is lost. New connections are passed on.
    pub fn reset(&self) {
        for is_reset in self.resets.lock().unwrap().drain(..) {
            is_reset.store(true, Relaxed);
        }
    }
}

fn copy(
    mut from: TcpStream,
    mut to: TcpStream,
    is_frozen: &AtomicBool,
    is_reset: &AtomicBool,
    delay: Duration,
) {
    let mut buffer = vec![0; 64 << 10];
    from.set_read_timeout(Some(LOOK)).expect("a timeout");
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(_) => break,
        };
        while is_frozen.load(Relaxed) && !is_reset.load(Relaxed) {
            std::thread::park_timeout(LOOK);
        }
        if is_reset.load(Relaxed) {
            // The last close of a socket that discards unsent data is a reset.
            let at_once = linger {
                l_onoff: 1,
                l_linger: 0,
            };
            setsockopt(&from, sockopt::Linger, &at_once).ok();
            return;
        }
        if read == 0 {
            continue;
        }
        std::thread::park_timeout(delay);
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    to.shutdown(Shutdown::Write).ok();
    from.shutdown(Shutdown::Read).ok();
}

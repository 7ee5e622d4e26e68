//! Replicas of a cluster behind a proxy, in place of one server.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};

use sshjobs::testing::NatsServer;

use super::Sshd;
use super::command::CLUSTER_CONFIG;
use super::server::Server;

/// Starts NATS and replicas. Every connection to the URL reaches the next replica.
pub fn start(sshd: &Sshd, replicas: usize) -> Server {
    let nats = NatsServer::start().expect("`make test-cluster` installs NATS");
    let config = format!("[cluster]\nnats = \"{}\"\nlease_s = 3\n", nats.url());
    std::fs::write(sshd.path(CLUSTER_CONFIG), config).expect("a file");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let first = Server::with(sshd, &[]);
    let others: Vec<Server> = (1..replicas).map(|_| Server::with(sshd, &[])).collect();
    let addresses: Vec<String> = std::iter::once(&first)
        .chain(&others)
        .map(|server| server.address().to_owned())
        .collect();
    // Ends with the process of the test.
    std::thread::spawn(move || {
        let incoming = listener.incoming().flatten();
        for (client, address) in incoming.zip(addresses.iter().cycle()) {
            let Ok(replica) = TcpStream::connect(address) else { continue };
            copy(&client, &replica);
            copy(&replica, &client);
        }
    });
    first.behind(format!("http://127.0.0.1:{port}"), Box::new((others, nats)))
}

/// Copies one direction in a thread, and passes the end on.
fn copy(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (
        from.try_clone().expect("a copy"),
        to.try_clone().expect("a copy"),
    );
    std::thread::spawn(move || {
        io::copy(&mut from, &mut to).ok();
        to.shutdown(Shutdown::Write).ok();
    });
}

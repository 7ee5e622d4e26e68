//! Faults, and how they are injected.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::RngExt;
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom, SliceRandom};
use tokio::time::{sleep, timeout};

use super::Size;
use super::network::Network;
use super::support::Sshd;
use super::support::disk::Disk;
use super::support::relay::Relay;
use super::support::server::Server;

/// A fault that is injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The host's sessions are killed, and TCP ends their connections (FIN).
    SessionsKilled,
    /// The connections are reset (RST): data on its way is lost.
    ConnectionsReset,
    /// The network passes nothing on for some seconds, without an error.
    NetworkFrozen,
    /// The network loses one packet in twenty for some seconds.
    PacketsLost,
    /// The host's sessions are stopped for some seconds, without an error.
    HostFrozen,
    /// The host's sshd is killed and started again.
    SshdRestarted,
    /// The server is killed and started again.
    ServerKilled,
    /// The server gets TERM, and is started again when it has ended.
    ServerRestarted,
    /// The server is stopped for some seconds.
    ServerStopped,
    /// The disk of the server's state directory is full for some seconds.
    DiskFull,
}

/// The faults that a run may inject.
pub struct Faults {
    of_the_host: Vec<Fault>,
    of_the_server: Vec<Fault>,
}

impl Faults {
    /// Those of a run, in the order that the dice decide. As far as there is room, each possible fault once
    /// at least.
    pub fn choose(&self, size: Size, dice: &mut SmallRng) -> Vec<Fault> {
        let mut chosen = some_of_each(&self.of_the_host, size.cuts, dice);
        chosen.extend(some_of_each(&self.of_the_server, size.kills, dice));
        chosen.shuffle(dice);
        chosen
    }
}

/// Each of these faults once, then others that the dice choose, until there are `count`.
fn some_of_each(faults: &[Fault], count: usize, dice: &mut SmallRng) -> Vec<Fault> {
    let mut chosen: Vec<Fault> = faults.iter().copied().take(count).collect();
    let others = (chosen.len()..count).map(|_| *faults.choose(dice).expect("some are possible"));
    chosen.extend(others);
    chosen
}

/// A server, a host, and the network between them. Dropped in this order: the directory of the host can
/// be removed only when no disk is mounted in it.
pub struct House {
    server: Option<Server>,
    /// The disk of the state directory, if it can be filled.
    disk: Option<Disk>,
    relay: Relay,
    network: Option<Network>,
    pub sshd: Sshd,
    pub address: String,
}

impl House {
    /// `network` and `with_small_disk` allow the faults that need them.
    pub async fn start(size: Size, network: Option<Network>, with_small_disk: bool) -> Self {
        let sshd = Sshd::start().await;
        let disk = with_small_disk.then(|| {
            let options = format!("size={},mode=700", size.bytes() * 4);
            Disk::mount(sshd.path("state"), &options)
        });
        let relay = Relay::to(&format!("ssh://127.0.0.1:{}", sshd.port()));
        let config = std::fs::read_to_string(sshd.ssh_config()).unwrap();
        let direct = format!("Port {}", sshd.port());
        let relayed = config.replace(
            &direct,
            &format!("Port {}\n  HostKeyAlias torture", relay.port()),
        );
        std::fs::write(sshd.ssh_config(), relayed).unwrap();
        let key = std::fs::read_to_string(sshd.path("host.pub")).unwrap();
        sshd.write_known_hosts(&format!("torture {key}"));
        let server = Server::start(&sshd);
        let address = server.address().to_owned();
        Self {
            sshd,
            relay,
            network,
            disk,
            server: Some(server),
            address,
        }
    }

    /// The faults that can be injected here.
    pub fn faults(&self) -> Faults {
        let mut of_the_host = vec![
            Fault::SessionsKilled,
            Fault::ConnectionsReset,
            Fault::NetworkFrozen,
            Fault::HostFrozen,
            Fault::SshdRestarted,
        ];
        let mut of_the_server = vec![
            Fault::ServerKilled,
            Fault::ServerRestarted,
            Fault::ServerStopped,
        ];
        of_the_host.extend(self.network.is_some().then_some(Fault::PacketsLost));
        of_the_server.extend(self.disk.is_some().then_some(Fault::DiskFull));
        Faults {
            of_the_host,
            of_the_server,
        }
    }

    pub async fn inject(&mut self, fault: Fault, dice: &mut SmallRng) {
        let pause = Duration::from_millis(300 + dice.random_range(0..2500));
        match fault {
            Fault::SessionsKilled => self.sshd.cut(),
            Fault::ConnectionsReset => self.relay.reset(),
            Fault::NetworkFrozen => {
                self.relay.freeze(true);
                sleep(pause).await;
                self.relay.freeze(false);
            }
            Fault::PacketsLost => {
                let network = self.network.as_ref().expect("this fault is possible");
                network.lose_packets().unwrap();
                sleep(pause).await;
                network.stop_loss();
            }
            Fault::HostFrozen => {
                self.sshd.freeze();
                sleep(pause).await;
                self.sshd.thaw();
            }
            Fault::SshdRestarted => {
                self.sshd.kill();
                sleep(pause / 4).await;
                self.sshd.start_again().await.expect("sshd starts again");
            }
            Fault::ServerKilled => {
                // Dropping it is a SIGKILL.
                drop(self.server.take());
                self.server = Some(Server::at(&self.sshd, &self.address, &[]));
            }
            Fault::ServerRestarted => {
                let server = self.server.take().unwrap();
                let ended = timeout(Duration::from_secs(60), server.stop()).await;
                assert_eq!(ended.expect("it ends"), Some(0));
                self.server = Some(Server::at(&self.sshd, &self.address, &[]));
            }
            Fault::ServerStopped => {
                let pid = Pid::from_raw(self.server.as_ref().unwrap().pid().cast_signed());
                kill(pid, Signal::SIGSTOP).unwrap();
                sleep(pause).await;
                kill(pid, Signal::SIGCONT).unwrap();
            }
            Fault::DiskFull => {
                let ballast = self.disk.as_ref().expect("this fault is possible").fill();
                sleep(pause).await;
                std::fs::remove_file(ballast).unwrap();
            }
        }
    }
}

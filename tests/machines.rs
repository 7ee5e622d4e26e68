//! Several machines behind one name: two sshds with the same keys in process namespaces of their
//! own, and a relay that distributes connections to them in turn, as a load balancer does. Reports
//! about a job must be about its machine.
//!
//! Needs root, or a kernel that lets users have namespaces.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use sshjobs_core::jobs::Limits;
use sshjobs_wire::{
    Code, DeliveryRoute, JobState, Service, SignalReply, SignalRequest, TailRequest,
};
use support::{Sshd, canonical_loop, eventually, service, spawn};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Machines in the order in which they get connections.
struct Balanced {
    sshd: Sshd,
    machines: Vec<Child>,
    made: Arc<AtomicUsize>,
    /// Aborted, it cuts all connections.
    relays: JoinSet<()>,
    ports: Vec<u16>,
    listener: Option<SocketAddr>,
}

impl Balanced {
    async fn start(count: usize) -> Self {
        let sshd = Sshd::start().await;
        let mut balanced = Self {
            sshd,
            machines: Vec::new(),
            made: Arc::default(),
            relays: JoinSet::new(),
            ports: Vec::new(),
            listener: None,
        };
        for _ in 0..count {
            balanced.machine().await;
        }
        balanced.listen(0).await;
        balanced
    }

    /// An sshd in a process namespace of its own: its numbers begin again at 1.
    async fn machine(&mut self) {
        let port = std::net::TcpListener::bind(("127.0.0.1", 0))
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let (config, log) = (
            self.sshd.path("sshd_config"),
            self.sshd.path(&format!("log{port}")),
        );
        let child = Command::new("unshare")
            .args([
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
                "/usr/sbin/sshd",
                "-D",
                "-e",
                "-p",
            ])
            .arg(port.to_string())
            .arg("-f")
            .arg(config)
            .args(["-o", &format!("ListenAddress=127.0.0.1:{port}")])
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .expect("unshare (util-linux) can be started");
        self.machines.push(child);
        self.ports.push(port);
        eventually("the machine is up", async || {
            std::fs::read_to_string(&log)
                .unwrap_or_default()
                .contains(&format!("port {port}."))
        })
        .await;
    }

    /// Gives connections to the machines in turn, from machine `first` on.
    async fn listen(&mut self, first: usize) {
        let address = self.listener.unwrap_or(([127, 0, 0, 1], 0).into());
        let listener = TcpListener::bind(address).await.unwrap();
        self.listener = Some(listener.local_addr().unwrap());
        let (ports, made) = (self.ports.clone(), Arc::clone(&self.made));
        made.store(first, Relaxed);
        self.relays.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                let port = ports[made.fetch_add(1, Relaxed) % ports.len()];
                connections.spawn(async move {
                    let mut machine = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                    drop(copy_bidirectional(&mut client, &mut machine).await);
                });
            }
        });
        let port = self.listener.unwrap().port();
        let text = std::fs::read_to_string(self.sshd.ssh_config()).unwrap();
        let own = format!("Port {}", self.sshd.port());
        std::fs::write(
            self.sshd.ssh_config(),
            text.replace(&own, &format!("Port {port}")),
        )
        .unwrap();
        let known = std::fs::read_to_string(self.sshd.path("host.pub")).unwrap();
        self.sshd.write_known_hosts(&format!("[127.0.0.1]:{port} {known}"));
    }

    /// Cuts every connection; those that come next go to the machines in turn from `first` on.
    async fn cut(&mut self, first: usize) {
        self.relays.shutdown().await;
        self.listen(first).await;
    }

    /// One job a connection, so that two jobs are on two machines.
    fn service(&self) -> Service {
        service(
            &self.sshd.ssh_config(),
            Limits {
                jobs_per_connection: 1,
                ..Limits::default()
            },
        )
    }
}

impl Drop for Balanced {
    fn drop(&mut self) {
        for machine in &mut self.machines {
            machine.kill().ok();
            machine.wait().ok();
        }
    }
}

async fn group_of(service: &Service, job: &str) -> String {
    let reply = service.tail(TailRequest::new(job, 0, 5000)).await.unwrap();
    reply.lines.unwrap().remove(0)
}

async fn signal(
    service: &Service,
    job: &str,
    signal: &str,
) -> Result<SignalReply, sshjobs_wire::Error> {
    let request = SignalRequest {
        signal: Some(signal.to_owned()),
        ..SignalRequest::new(job)
    };
    service.signal(request).await
}

/// Jobs until two of them, on different machines, have the same group number.
async fn twins(service: &Service) -> (String, String) {
    let mut known: Vec<(String, String)> = Vec::new();
    for _ in 0..40 {
        let job = spawn(service, "echo $$; while :; do sleep 1; done").await;
        let group = group_of(service, &job).await;
        if let Some((_, twin)) = known.iter().find(|(other, _)| *other == group) {
            return (twin.clone(), job);
        }
        known.push((group, job));
    }
    panic!("no two groups with one number: {known:?}");
}

async fn state(service: &Service, job: &str) -> JobState {
    service.tail(TailRequest::new(job, 1, 0)).await.unwrap().standing.state
}

#[tokio::test]
async fn a_signal_reaches_the_job_and_not_its_twin_on_another_machine() {
    let machines = Balanced::start(2).await;
    let service = machines.service();
    let (first, second) = twins(&service).await;
    for (killed, twin) in [(&first, Some(&second)), (&second, None)] {
        let reply = signal(&service, killed, "KILL").await.unwrap();
        assert_eq!(
            (reply.delivered_via, reply.confirmed_dead),
            (DeliveryRoute::ProcessGroup, true)
        );
        assert_eq!(
            canonical_loop(&service, killed).await.state(),
            JobState::Signaled
        );
        if let Some(twin) = twin {
            assert_eq!(
                state(&service, twin).await,
                JobState::Running,
                "the twin was killed"
            );
        }
    }
    service.shutdown().await;
}

#[tokio::test]
async fn shutdown_ends_the_jobs_of_every_machine() {
    let machines = Balanced::start(2).await;
    let service = machines.service();
    let mark = format!("sleep 1000.{}", machines.sshd.port());
    for _ in 0..4 {
        let job = spawn(&service, &format!("echo $$; exec {mark}")).await;
        group_of(&service, &job).await;
    }
    let left = || {
        String::from_utf8(Command::new("pgrep").args(["-fx", &mark]).output().unwrap().stdout)
            .unwrap()
    };
    assert_eq!(left().lines().count(), 4);
    service.shutdown().await;
    assert_eq!(left(), "");
}

#[tokio::test]
async fn when_its_connection_is_gone_a_job_is_found_on_its_own_machine_or_nothing_is_signalled() {
    let mut machines = Balanced::start(2).await;
    let service = machines.service();
    let (first, second) = twins(&service).await;
    machines.cut(0).await;
    for job in [&first, &second] {
        assert_eq!(canonical_loop(&service, job).await.state(), JobState::Lost);
    }
    // Either machine may come first; each job is ended where it is.
    for job in [&second, &first] {
        let reply = signal(&service, job, "KILL").await.unwrap();
        assert_eq!(
            (reply.delivered_via, reply.confirmed_dead),
            (DeliveryRoute::ProcessGroup, true),
            "{reply:?}"
        );
    }
    let third = spawn(&service, "echo $$; while :; do sleep 1; done").await;
    let group = group_of(&service, &third).await;
    // From here on the name leads to a third machine only.
    machines.ports.clear();
    machines.machine().await;
    machines.cut(0).await;
    assert_eq!(
        canonical_loop(&service, &third).await.state(),
        JobState::Lost
    );
    let stranger = spawn(
        &service,
        &format!("echo $$; echo not {group}; while :; do sleep 1; done"),
    )
    .await;
    group_of(&service, &stranger).await;
    let error = signal(&service, &third, "KILL").await.unwrap_err();
    assert_eq!(error.code, Code::ConnectionLost, "{error}");
    assert!(
        error.message.contains("another machine answers to its name"),
        "{error}"
    );
    assert_eq!(state(&service, &stranger).await, JobState::Running);
    tokio::time::timeout(Duration::from_secs(20), service.shutdown()).await.unwrap();
}

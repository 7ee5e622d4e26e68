//! Replicas of a cluster: servers of the built binary over one NATS.

use sshjobs::testing::NatsServer;

use super::Sshd;
use super::command::{sshjobs, told};
use super::server::{Caller, Server};

/// A host, a NATS server, and replicas. Stopped when dropped, whatever happens.
pub struct Cluster {
    pub replicas: Vec<Server>,
    pub nats: NatsServer,
    pub sshd: Sshd,
    arguments: Vec<String>,
}

impl Cluster {
    /// Starts as many replicas, with the hosts `web1` and `h0` to `h99`.
    pub async fn start(replicas: usize) -> Self {
        Self::with(replicas, "").await
    }

    /// With a configuration.
    pub async fn with(replicas: usize, config: &str) -> Self {
        let sshd = Sshd::start().await;
        sshd.alias((0..100).map(|number| format!("h{number}")));
        let nats = NatsServer::start().expect("`make test-cluster` installs NATS");
        let file = sshd.path("config.toml");
        std::fs::write(&file, format!("[cluster]\nlease_s = 3\n{config}")).expect("a file");
        let arguments = vec![
            "--config".to_owned(),
            file.display().to_string(),
            "--cluster".to_owned(),
            nats.url(),
        ];
        let mut cluster = Self {
            replicas: Vec::new(),
            nats,
            sshd,
            arguments,
        };
        for _ in 0..replicas {
            cluster.add_replica();
        }
        cluster
    }

    /// Starts another replica.
    pub fn add_replica(&mut self) -> &Server {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        self.replicas.push(Server::with(&self.sshd, &arguments));
        self.replicas.last().expect("one")
    }

    /// Runs `sshjobs token` for the cluster.
    pub fn token(&self, arguments: &[&str]) -> String {
        let cluster: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let all = [&["token"], cluster.as_slice(), arguments].concat();
        told(&sshjobs(&self.sshd, &all)).trim().to_owned()
    }

    /// A caller at each replica, with one token.
    pub fn callers(&self, name: &str, options: &[&str]) -> Vec<Caller> {
        let token = self.token(&[&["new", name], options].concat());
        self.replicas.iter().map(|replica| Caller::new(&replica.url, &token)).collect()
    }
}

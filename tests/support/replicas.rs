//! Replicas of a cluster: servers of the built binary over one NATS.

use std::process::Output;

use sshjobs::testing::NatsServer;

use super::Sshd;
use super::command::{sshjobs, told};
use super::server::{Caller, Server};

/// A host with the names `web1` and `h0` to `h99`, NATS, and replicas. Stopped when dropped, whatever happens.
pub struct Cluster {
    pub replicas: Vec<Server>,
    pub nats: Vec<NatsServer>,
    pub sshd: Sshd,
    arguments: Vec<String>,
}

/// Seconds of a lease: the least that is allowed.
const LEASE: u32 = 3;

impl Cluster {
    /// Over three NATS servers.
    pub async fn over_three_servers(replicas: usize) -> Self {
        let nats = NatsServer::cluster().expect("`make test-cluster` installs NATS");
        Self::over(Vec::from(nats), replicas, LEASE).await
    }

    /// With leases of so many seconds: what does not wait for one to run out is quick all the same.
    pub async fn with_leases_of(seconds: u32, replicas: usize) -> Self {
        let nats = NatsServer::start().expect("`make test-cluster` installs NATS");
        Self::over(vec![nats], replicas, seconds).await
    }

    /// The same, with connections to hosts that are closed after so many seconds without a job.
    pub async fn with_short_connections(idle: u32, lease: u32, replicas: usize) -> Self {
        let nats = NatsServer::start().expect("`make test-cluster` installs NATS");
        let sshd = Sshd::with("MaxStartups 1000\nMaxSessions 100").await;
        let limits = format!("idle_connection_s = {idle}");
        Self::configured(sshd, vec![nats], replicas, lease, &limits)
    }

    /// Over one NATS server, with a policy.
    pub async fn with_policy(policy: &str, replicas: usize) -> Self {
        let nats = NatsServer::start().expect("`make test-cluster` installs NATS");
        let sshd = Sshd::with("MaxStartups 1000\nMaxSessions 100").await;
        let file = sshd.path("policy.toml");
        std::fs::write(&file, policy).expect("a file");
        let table = format!("[policy]\nfile = {:?}", file.display().to_string());
        Self::configured(sshd, vec![nats], replicas, LEASE, &table)
    }

    /// Over one NATS server.
    pub async fn start(replicas: usize) -> Self {
        let nats = NatsServer::start().expect("`make test-cluster` installs NATS");
        Self::over(vec![nats], replicas, LEASE).await
    }

    /// Over the given NATS servers.
    pub async fn over_servers(nats: Vec<NatsServer>, replicas: usize) -> Self {
        Self::over(nats, replicas, LEASE).await
    }

    async fn over(nats: Vec<NatsServer>, replicas: usize, lease: u32) -> Self {
        let sshd = Sshd::with("MaxStartups 1000\nMaxSessions 100").await;
        Self::at(sshd, nats, replicas, lease)
    }

    /// Over one NATS server, for a host and a state directory that exist. No replica runs yet.
    pub fn on(sshd: Sshd) -> Self {
        let nats = NatsServer::start().expect("`make test-cluster` installs NATS");
        Self::at(sshd, vec![nats], 0, LEASE)
    }

    fn at(sshd: Sshd, nats: Vec<NatsServer>, replicas: usize, lease: u32) -> Self {
        Self::configured(sshd, nats, replicas, lease, "")
    }

    /// With leases of so many seconds, and further lines for `[limits]` or tables after it.
    fn configured(
        sshd: Sshd,
        nats: Vec<NatsServer>,
        replicas: usize,
        lease: u32,
        limits: &str,
    ) -> Self {
        sshd.alias((0..100).map(|number| format!("h{number}")));
        let file = sshd.path("config.toml");
        std::fs::write(
            &file,
            format!("[cluster]\nlease_s = {lease}\n[limits]\nmax_jobs = 20000\n{limits}\n"),
        )
        .expect("a file");
        let arguments = vec![
            "--config".to_owned(),
            file.display().to_string(),
            "--cluster".to_owned(),
            nats.iter().map(NatsServer::url).collect::<Vec<_>>().join(","),
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

    /// Starts a replica that reaches NATS at other URLs. It becomes the first one.
    pub fn add_replica_at(&mut self, urls: &str) {
        let mut arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        *arguments.last_mut().expect("the URLs") = urls;
        self.replicas.insert(0, Server::with(&self.sshd, &arguments));
    }

    /// Runs a verb of `sshjobs` for the cluster.
    pub fn run(&self, words: &[&str]) -> Output {
        self.run_as(words, "--cluster")
    }

    /// The same with another option that names NATS.
    pub fn run_as(&self, words: &[&str], option: &str) -> Output {
        let named = self.arguments.iter().map(String::as_str);
        let named = named.map(|word| if word == "--cluster" { option } else { word });
        sshjobs(
            &self.sshd,
            &words.iter().copied().chain(named).collect::<Vec<_>>(),
        )
    }

    /// Runs `sshjobs token` for the cluster.
    pub fn token(&self, arguments: &[&str]) -> String {
        let cluster: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        // The options belong to `token`, and not to its subcommand.
        let all = [&["token"], cluster.as_slice(), arguments].concat();
        told(&sshjobs(&self.sshd, &all)).trim().to_owned()
    }

    /// A caller at each replica, with one token.
    pub fn callers(&self, name: &str, options: &[&str]) -> Vec<Caller> {
        let token = self.token(&[&["new", name], options].concat());
        self.replicas.iter().map(|replica| Caller::new(&replica.url, &token)).collect()
    }
}

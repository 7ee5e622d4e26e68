//! Hosts for tests of programs that use this library. Feature `testing`; not for
//! production.
//!
//! [`Sshd`] is a private OpenSSH server on loopback, with keys, known_hosts and an ssh_config of
//! its own, in a temporary directory. It can fail as networks do: [`cut`](Sshd::cut) breaks every
//! connection, [`freeze`](Sshd::freeze) lets them hang. [`Demo`] is a server inside the process for
//! machines without sshd: it runs commands and no more. [`NatsServer`] is a private NATS server.
//!
//! ```
//! use sshjobs::Command;
//! use sshjobs::testing::Sshd;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let sshd = Sshd::start().await?;
//! let jobs = sshd.jobs().await?;
//! let job = jobs.host(Sshd::HOST).spawn(&Command::new("sleep").arg(60)).await?;
//! sshd.cut();
//! assert!(!job.wait().await.is_success(), "the connection is lost, and the job with it");
//! jobs.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! In Cargo.toml: `sshjobs = { version = "…", features = ["testing"] }` among the dev-dependencies.
//! Our own tests use it, too.

mod demo;
mod keys;
mod nats;
mod processes;
mod sshd;

pub use demo::Demo;
pub use keys::{keygen, ssh_keygen};
pub use nats::{NatsServer, NatsServerError};
pub use sshd::{Sshd, SshdError};

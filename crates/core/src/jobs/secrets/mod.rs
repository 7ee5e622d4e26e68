//! Secrets that commands use by their names: the tables `[secrets.NAME]` of the configuration.
//!
//! # Theory of operation
//! A caller names a secret and never gets its value. `secret_use.rs` in the parent folder checks that the
//! caller may use it on each host of the call, before the policy is asked, and reads it after the policy
//! has allowed the call. The value then goes to the host on the stdin of the job. The job's own log hides
//! it in the output (`sshjobs_output::scrub`). A process that takes over a durable job reads the secret again, to
//! hide it in the output that is read from the host.

mod config;
mod refusal;
mod secrets;

pub use config::SecretConfig;
pub use refusal::SecretRefusal;
pub(super) use secrets::{ConfiguredSecrets, SecretValue};

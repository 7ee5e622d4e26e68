//! Option values that several verbs share: ssh options, durations, starting points and streams.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};

use sshjobs_core::jobs::{Become, BecomeMethod, SpecError};
use sshjobs_wire::Error;

/// Heading of the options that all verbs have.
pub(crate) const GLOBAL: &str = "Global options";
/// Variables for the options `--config` and `--state-dir`.
pub(super) const CONFIG_VARIABLE: &str = "SSHJOBS_CONFIG";
pub(super) const STATE_DIR_VARIABLE: &str = "SSHJOBS_STATE_DIR";

/// Options with the same meaning as in ssh, for the named host.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "SSH options")]
pub struct SshArgs {
    /// TCP port.
    #[arg(short, value_name = "PORT")]
    pub port: Option<u16>,
    /// User name.
    #[arg(short, value_name = "USER")]
    pub login: Option<String>,
    /// Private key to try first.
    #[arg(short, value_name = "FILE")]
    pub identity: Vec<String>,
    /// Jump hosts on the way.
    #[arg(short = 'J', value_name = "HOSTS")]
    pub jump: Option<String>,
    /// An option of ssh_config, as KEY=VALUE.
    #[arg(short, value_name = "KEY=VALUE")]
    pub option: Vec<String>,
    /// Print only errors, no notes and warnings.
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Log what happens to stderr; -vv logs more.
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

impl SshArgs {
    /// The same options as arguments of ssh.
    pub fn to_ssh(&self) -> Vec<String> {
        let port = one("-p", self.port.map(|port| port.to_string()));
        let pairs = port
            .into_iter()
            .chain(one("-l", self.login.clone()))
            .chain(one("-J", self.jump.clone()));
        pairs
            .chain(many("-i", &self.identity))
            .chain(many("-o", &self.option))
            .flatten()
            .collect()
    }
}

/// Parses a duration: seconds, or with units.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let time = seconds.map_or_else(|| humantime::parse_duration(text), Ok);
    let time =
        time.map_err(|_| "use seconds, as 90 or 1.5, or units, as 90s or 1m30s".to_owned())?;
    let least = Duration::from_millis(1);
    let most = Duration::from_secs(365 * 24 * 3600);
    if (least..=most).contains(&time) {
        Ok(time)
    } else {
        Err("use 1ms to 365days".to_owned())
    }
}

/// Where `tail` starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// After this line.
    Line(u64),
    /// At the first line at or after this time, in milliseconds since the epoch.
    Time(u64),
}

/// The name of one host, for a filter of jobs.
pub(super) fn one_host(text: &str) -> Result<String, String> {
    let is_pattern = text.contains(['*', '?', ',', '!']) || text.starts_with(['@']);
    // An address has its brackets at the start.
    let is_range = text.find('[').is_some_and(|at| at > 0);
    if is_pattern || is_range || text.starts_with("tag:") {
        return Err("it is not the name of one host".to_owned());
    }
    Ok(text.to_owned())
}

/// Parses a start: a line number, a duration before now, or a time.
pub(super) fn since(text: &str) -> Result<Since, String> {
    if let Ok(line) = text.parse() {
        return Ok(Since::Line(line));
    }
    let now = SystemTime::now();
    let ago = humantime::parse_duration(text)
        .ok()
        .map(|ago| now.checked_sub(ago).unwrap_or(UNIX_EPOCH).max(UNIX_EPOCH));
    let time = ago.or_else(|| humantime::parse_rfc3339_weak(text).ok());
    let time = time.or_else(|| humantime::parse_rfc3339_weak(&format!("{text}T00:00:00")).ok());
    if time.is_some_and(|time| time > now) {
        return Err("this time is yet to come".to_owned());
    }
    let since_epoch = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let millis = since_epoch.and_then(|time| u64::try_from(time.as_millis()).ok());
    let usage = "use a line number, as 42; a time before now, as 10m; or a UTC time, \
        as 2026-11-23 or 2026-11-23T10:00:00Z";
    millis.map(Since::Time).ok_or_else(|| usage.to_owned())
}

/// Streams to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StreamChoice {
    /// Both: stdout to stdout, stderr to stderr.
    Both,
    /// Only standard output.
    Stdout,
    /// Only standard error.
    Stderr,
}

/// An option with its value, if there is one.
fn one(name: &str, value: Option<String>) -> Option<[String; 2]> {
    value.map(|value| [name.to_owned(), value])
}

/// An option repeated for each value.
fn many(name: &str, values: &[String]) -> Vec<[String; 2]> {
    values.iter().map(|value| [name.to_owned(), value.clone()]).collect()
}

/// Another user of the host, as whom a command runs or files are used.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Another user")]
pub struct BecomeArgs {
    /// Become root, as with --become root.
    #[arg(short = 'b', group = "another_user")]
    pub root: bool,
    /// Become this user; a password comes from [hosts.NAME] or from you.
    #[arg(
        long = "become",
        id = "user",
        value_name = "USER",
        group = "another_user"
    )]
    pub user: Option<String>,
    /// How: sudo, doas or su (which asks for the other user's password).
    #[arg(long, value_name = "PROGRAM", requires = "another_user")]
    pub become_method: Option<BecomeMethod>,
}

impl BecomeArgs {
    /// The user's name, if one was given.
    pub fn user(&self) -> Option<String> {
        if self.root {
            return Some("root".to_owned());
        }
        self.user.clone()
    }

    /// The user, if one was given.
    pub fn becomes(&self) -> Result<Option<Become>, Error> {
        let Some(user) = self.user() else { return Ok(None) };
        let becomes = Become::new(user, self.become_method.unwrap_or_default());
        Ok(Some(becomes.map_err(|error| {
            sshjobs_core::jobs::Error::from(SpecError::from(error))
        })?))
    }
}

/// The option that names a cluster.
#[derive(Clone, Debug, Default, Args)]
pub struct ClusterArg {
    /// URLs of the cluster's NATS servers, separated by commas, such as nats://10.0.0.1:4222.
    /// Default: the key `nats` in the table `cluster` of the configuration. See docs/cluster.md.
    #[arg(id = "cluster", long = "cluster", value_name = "URLS", global = true)]
    pub nats: Option<String>,
}

/// How lines of the log look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line, for programs that collect logs.
    Json,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_begins_behind_a_line_or_at_a_time() {
        assert_eq!(since("42"), Ok(Since::Line(42)));
        for day in ["2026-11-23", "2026-11-23T00:00:00Z", "2026-11-23 00:00:00"] {
            assert_eq!(since(day), Ok(Since::Time(1_795_392_000_000)), "{day}");
        }
        let hour = match since("1h") {
            Ok(Since::Time(time)) => UNIX_EPOCH + Duration::from_millis(time),
            other => panic!("{other:?}"),
        };
        let ago = SystemTime::now().duration_since(hour).unwrap();
        assert!((3600..3700).contains(&ago.as_secs()), "{ago:?}");
        for text in ["", "-1", "1.5", "yesterday", "2026-13-01"] {
            assert!(since(text).is_err(), "{text}");
        }
        assert_eq!(since("100years"), Ok(Since::Time(0)));
        assert!(since("2999-01-01").is_err());
    }
}

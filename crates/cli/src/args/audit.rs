//! Arguments of `audit` and its subcommands.

use std::path::PathBuf;
use std::time::SystemTime;

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCandidates;

use super::candidates;
use super::values::ClusterArg;
use sshjobs_policy::audit::{LogHead, PublicKey};

/// Arguments of `audit`.
#[derive(Debug, Args)]
#[command(after_help = "\
The log is that of the policy file (--policy, or `file` in the table [policy] of the configuration),
or FILE. docs/audit.md explains the limits of a check.

Examples:
  sshjobs audit show --host web1 --since 1d
  sshjobs audit show --job web1-7f3k9q2m
  sshjobs audit verify
  sshjobs audit verify --head 1200:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")]
pub struct AuditArgs {
    /// The cluster that keeps the checkpoints.
    #[command(flatten)]
    pub cluster: ClusterArg,
    /// The subcommand.
    #[command(subcommand)]
    pub verb: AuditSubcommand,
}

impl AuditArgs {
    /// Whether the subcommand reads checkpoints of a cluster.
    pub fn needs_cluster(&self) -> bool {
        match &self.verb {
            // A copy is compared only if --name says which log it is.
            AuditSubcommand::Verify(args) => args.file.is_none() || args.name.is_some(),
            AuditSubcommand::Checkpoints(_) => true,
            AuditSubcommand::Show(_) | AuditSubcommand::Prune(_) | AuditSubcommand::Key(_) => false,
        }
    }
}

/// Subcommands of `audit`.
#[derive(Debug, Subcommand)]
pub enum AuditSubcommand {
    /// Check that no line was changed, removed, inserted or moved.
    Verify(AuditVerifyArgs),
    /// Show decisions and their results.
    Show(AuditShowArgs),
    /// Show the checkpoints that a cluster keeps of its replicas' logs.
    Checkpoints(AuditCheckpointsArgs),
    /// Delete old files of the log, and record that in a signed line.
    Prune(AuditPruneArgs),
    /// Print the public key that checkpoints are checked with.
    Key(AuditKeyArgs),
}

/// Arguments of `audit verify`.
#[derive(Debug, Args)]
#[command(after_help = "\
A check finds a line that was changed, removed, inserted or moved, if the lines after it are as they
were. It finds lines that were cut off at the end, or a change of the last one, with --head, which names
a line of an earlier check or of an anchor. It finds a log that was rewritten with --head, or with the
key, if the writer could not read the private one. In a cluster it also compares the log with the
checkpoints that NATS keeps; with FILE it does so only if --name says which log FILE is a copy of.

Exit status: 0 if nothing is wrong; 1 if something is; 2 if the log can't be read; 255 if the cluster can't
be reached. To check a log without the cluster, name it as FILE.")]
pub struct AuditVerifyArgs {
    /// The log. Full files beside it are read first.
    pub file: Option<PathBuf>,
    /// A line that is known from an anchor or from an earlier check. May be repeated.
    #[arg(long = "head", value_name = "SEQ:HASH")]
    pub heads: Vec<LogHead>,
    /// The public key that `sshjobs audit key` printed. Default: that of the private key, if it can be
    /// read.
    #[arg(long, value_name = "KEY")]
    pub public_key: Option<PublicKey>,
    /// The log's name in the cluster, if FILE is a copy: MACHINE:PATH, as `sshjobs audit checkpoints`
    /// prints it. Default: this machine and the path of the configured log.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Write one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `audit checkpoints`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without --name it shows the newest checkpoint of each log. A checkpoint is SEQ:HASH, which `sshjobs audit
verify --head` takes on a machine that can't reach the cluster.

Exit status: 0; 1 if there is no checkpoint; 255 if the cluster can't be reached.")]
pub struct AuditCheckpointsArgs {
    /// All checkpoints of this log.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Write one JSON object for each checkpoint.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `audit show`.
#[derive(Debug, Args)]
pub struct AuditShowArgs {
    /// The log. Full files beside it are read first.
    pub file: Option<PathBuf>,
    /// Only calls of this caller.
    #[arg(long, value_name = "NAME")]
    pub caller: Option<String>,
    /// Only calls about this host, by the name that the caller used or one that it has.
    #[arg(long, value_name = "HOST", add = ArgValueCandidates::new(candidates::hosts))]
    pub host: Option<String>,
    /// Only the decision that started this job, and those about it.
    #[arg(long, value_name = "ID")]
    pub job: Option<String>,
    /// Only denied calls.
    #[arg(long)]
    pub denied: bool,
    /// Only lines from this time on: a duration before now, such as 2h, or a time, such as 2026-11-25.
    #[arg(long, value_name = "TIME", value_parser = point_in_time)]
    pub since: Option<SystemTime>,
    /// Only lines before this time.
    #[arg(long, value_name = "TIME", value_parser = point_in_time)]
    pub until: Option<SystemTime>,
    /// Write the lines as they are in the log.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `audit prune`.
#[derive(Debug, Args)]
#[command(after_help = "\
Deletes full files (FILE.NUMBER) whose last line is older than TIME, the oldest first; the file that is being written stays. A line
in the log says which lines were deleted, and the hash of the last of them; a checkpoint signs it. `audit verify` then knows a pruned
log from one whose beginning was removed. Servers may go on meanwhile. Copy the files elsewhere first if you need them longer.

Example, once a day:
  sshjobs audit prune --before 90d")]
pub struct AuditPruneArgs {
    /// A duration before now, such as 90d, or a time, such as 2026-11-25.
    #[arg(long, value_name = "TIME", value_parser = point_in_time)]
    pub before: SystemTime,
}

/// Arguments of `audit key`.
#[derive(Debug, Args)]
pub struct AuditKeyArgs {
    /// The private key. Default: that of the policy file.
    pub file: Option<PathBuf>,
}

/// Parses a duration before now, a date or a time in UTC.
fn point_in_time(text: &str) -> Result<SystemTime, String> {
    let ago = humantime::parse_duration(text).ok();
    let ago = ago.and_then(|ago| SystemTime::now().checked_sub(ago));
    let time = ago.or_else(|| humantime::parse_rfc3339_weak(text).ok());
    let time = time.or_else(|| humantime::parse_rfc3339_weak(&format!("{text}T00:00:00")).ok());
    time.ok_or_else(|| "use a duration, such as 2h, or a time, such as 2026-11-25".to_owned())
}

//! Arguments of `cluster` and `store`, and of their subcommands.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::values::ClusterArg;

/// Arguments of `cluster`.
#[derive(Debug, Args)]
pub struct ClusterArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub verb: ClusterVerb,
}

/// Subcommands of `cluster`.
#[derive(Debug, Subcommand)]
pub enum ClusterVerb {
    /// Show the replicas, the holder of each host, and the streams of NATS.
    Status(ClusterStatusArgs),
}

/// Arguments of `cluster status`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit status: 0 if all is well; 1 if no replica takes hosts, or if a stream of NATS has no leader or
a copy that is not up to date; 255 if NATS can't be reached.

Examples:
  sshjobs cluster status --cluster nats://10.0.0.1:4222
  sshjobs cluster status --json | jq '.replicas[].hosts'")]
pub struct ClusterStatusArgs {
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterArg,
    /// Write one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `store`.
#[derive(Debug, Args)]
pub struct StoreArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub verb: StoreVerb,
}

/// Subcommands of `store`.
#[derive(Debug, Subcommand)]
pub enum StoreVerb {
    /// Read everything in the state directory, and report damage.
    Check(StoreCheckArgs),
    /// Make records again that are damaged or missing.
    Repair(StoreRepairArgs),
    /// Copy the state directory to a file, while servers use it.
    Backup(StoreBackupArgs),
    /// Make a state directory from such a file.
    Restore(StoreRestoreArgs),
    /// Copy all jobs and tokens of the state directory to a cluster, and compare the copies.
    Copy(StoreCopyArgs),
}

/// Arguments of `store check`.
#[derive(Debug, Args)]
#[command(after_help = "\
Reads the records of all jobs and the checksums of their output. Changes nothing, and servers may go on meanwhile.

Exit status: 0 if all is whole; 1 if something is damaged; 255 if the state directory can't be read.")]
pub struct StoreCheckArgs {
    /// Write one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `store repair`.
#[derive(Debug, Args)]
#[command(after_help = "\
A damaged jobs.db is kept under another name, and a new one gets the records that can be read. The records of other jobs are made
again from the copies beside their output; where there is none, the output can be read by the job's id. Output is not changed: what
is damaged in it counts as dropped lines.

End the servers of the state directory first, and run this as their user.

Example:
  systemctl stop sshjobs && sudo -u sshjobs sshjobs --state-dir /var/lib/sshjobs store repair")]
pub struct StoreRepairArgs {
    /// Write one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `store backup`.
#[derive(Debug, Args)]
#[command(after_help = "\
The file is a tar archive with mode 0600: jobs.db at one moment, output, tokens, approvals, queues and what else is in the state
directory, by default also the audit log. It has no configuration, policy and keys from elsewhere; copy these, too. Servers may
go on meanwhile. Tokens are in it as hashes, and the output of jobs as it was stored: keep it as safe as the state directory.

Examples:
  sshjobs store backup /backup/sshjobs-$(date +%F).tar
  sshjobs --state-dir /var/lib/sshjobs store backup - | gzip >sshjobs.tar.gz")]
pub struct StoreBackupArgs {
    /// File to write, which must not exist; - for stdout.
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,
}

/// Arguments of `store restore`.
#[derive(Debug, Args)]
#[command(after_help = "\
The state directory must not exist, or be empty. Jobs keep their ids and line numbers. Durable jobs that ran at the time of the copy
are followed again from where their output ends in it; other jobs that ran then count as lost. Jobs that waited in a queue then wait
again, and run even if they have run since: cancel those with `sshjobs forget` before a server starts.

Never run servers on the copy and on the original at the same time: both would take over the same durable jobs.

Examples:
  sshjobs --state-dir /var/lib/sshjobs store restore /backup/sshjobs-2026-11-28.tar
  gunzip <sshjobs.tar.gz | sshjobs store restore -")]
pub struct StoreRestoreArgs {
    /// File that `store backup` wrote; - for stdin.
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,
}

/// Arguments of `store copy`.
#[derive(Debug, Args)]
#[command(after_help = "\
Copies jobs with their output, named cursors and idempotency keys. Output and records are read back
and compared. Line numbers and job ids stay the same. Tokens are copied if the cluster has none. The
state directory is not changed, and a second run copies jobs that are new. Don't run it twice at the
same time.

End the server of the state directory first: jobs of running processes are not copied. Durable jobs
that still run on their hosts are followed by the cluster from where their output ends.

Exit status: 0 if everything is in the cluster; 1 if a job was not copied; 255 if NATS or the state
directory can't be used.

Example:
  sshjobs store copy --to nats://10.0.0.1:4222")]
pub struct StoreCopyArgs {
    /// URLs of the cluster's NATS servers, separated by commas. Default: the key `nats` in the table
    /// `cluster` of the configuration.
    #[arg(long = "to", visible_alias = "cluster", value_name = "URLS")]
    pub to: Option<String>,
    /// Write one JSON object.
    #[arg(long)]
    pub json: bool,
}

//! Arguments of `cluster` and `store`, and of their subcommands.

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
    /// Copy all jobs and tokens of the state directory to a cluster, and compare the copies.
    Copy(StoreCopyArgs),
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

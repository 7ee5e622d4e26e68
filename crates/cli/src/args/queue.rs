//! Arguments of `queue`.

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCandidates;

use super::candidates;
use sshjobs_wire::{QueueEnd, QueuePlaceArg};

/// Arguments of `queue`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
A held job lets others pass. A held queue starts no jobs, including jobs that are added later; running
jobs continue. A running job can't be held or moved.

Examples:
  sshjobs spawn --queue deploy web1 -- ./deploy
  sshjobs queue                            all queues and their jobs
  sshjobs queue move web1-7f3k9q2m first   it starts next
  sshjobs queue hold deploy                nothing of this queue starts
  sshjobs queue release deploy"
)]
pub struct QueueArgs {
    /// Only this queue.
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Write one line of JSON per queue.
    #[arg(long)]
    pub json: bool,
    /// What to change.
    #[command(subcommand)]
    pub verb: Option<QueueVerb>,
}

/// Changes of queues.
#[derive(Debug, Subcommand)]
pub enum QueueVerb {
    /// Let a job, or all jobs of a queue, wait until they are released
    Hold(HoldArgs),
    /// Release a held job or queue
    Release(HoldArgs),
    /// Move a job that waits to another place
    Move(MoveArgs),
}

/// Arguments of `queue hold` and `queue release`.
#[derive(Debug, Args)]
pub struct HoldArgs {
    /// The whole id of a job, `last`, or the name of a queue.
    #[arg(value_name = "JOB|NAME", add = ArgValueCandidates::new(candidates::jobs))]
    pub target: String,
}

/// Arguments of `queue move`.
#[derive(Debug, Args)]
pub struct MoveArgs {
    /// The job's id.
    #[arg(add = ArgValueCandidates::new(candidates::jobs))]
    pub job: String,
    /// Its new place: first, last, or a number among the jobs that wait.
    #[arg(value_name = "first|last|N", value_parser = place)]
    pub place: QueuePlaceArg,
}

/// Parses a place.
fn place(text: &str) -> Result<QueuePlaceArg, String> {
    match text {
        "first" => Ok(QueuePlaceArg::End(QueueEnd::First)),
        "last" => Ok(QueuePlaceArg::End(QueueEnd::Last)),
        number => match number.parse() {
            Ok(number @ 1..) => Ok(QueuePlaceArg::Number(number)),
            Ok(0) | Err(_) => Err("use first, last or a number from 1".to_owned()),
        },
    }
}

use std::time::Duration;

use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCandidates;

use super::values::{Since, StreamChoice, since, time};
use crate::cli::candidates;

/// Arguments of `tail`.
#[derive(Debug, Args)]
#[command(after_help = "\
Lines of stderr are red on a terminal. Lines that are gone are counted on stderr.

Examples:
  sshjobs tail web1-7f3k9q2m                     the last ten lines
  sshjobs tail -f web1-7f3k9q2m                  and those to come, to the end of the job
  sshjobs tail --since 1200 web1-7f3k9q2m        those behind line 1200
  sshjobs tail --since 10m web1-7f3k9q2m         those of the last ten minutes
  sshjobs tail -f --until 'listening on' ID      up to a line that matches
  sshjobs tail --since 0 --json ID | jq .text    all of them, one object a line")]
pub struct TailArgs {
    /// The job, as `spawn` and `jobs` name it.
    #[arg(add = ArgValueCandidates::new(candidates::jobs))]
    pub job: String,
    /// Go on to the end of the job.
    #[arg(long, short)]
    pub follow: bool,
    /// Begin behind this line (0 is the beginning), so long ago (10m), or at this time (2026-11-23T10:00:00Z).
    #[arg(long, value_name = "LINE|TIME", value_parser = since, conflicts_with = "lines")]
    pub since: Option<Since>,
    /// Begin with the last so many lines.
    #[arg(long, short = 'n', value_name = "LINES", default_value_t = 10)]
    pub lines: u32,
    /// End with the first line that matches this regex; with -f wait for it.
    #[arg(long, value_name = "REGEX")]
    pub until: Option<String>,
    /// Show only this stream.
    #[arg(long, value_name = "STREAM", default_value = "both")]
    pub stream: StreamChoice,
    /// Put the time (UTC) before each line.
    #[arg(long)]
    pub timestamps: bool,
    /// Write a line of JSON for each line.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `read`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sshjobs read ID --offset -20                        the last 20 lines
  sshjobs read ID --unit bytes --offset 0 --length 512 --stream stdout")]
pub struct ReadArgs {
    /// The job.
    #[arg(add = ArgValueCandidates::new(candidates::jobs))]
    pub job: String,
    /// What offset and length count.
    #[arg(long, value_enum, default_value = "lines")]
    pub unit: UnitChoice,
    /// How much to skip; negative counts from the end.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub offset: i64,
    /// How much to show. Default 1000 lines, or 8000 characters or bytes.
    #[arg(long)]
    pub length: Option<i64>,
    /// Show only this stream.
    #[arg(long, value_name = "STREAM", default_value = "both")]
    pub stream: StreamChoice,
    /// Write the bytes of one stream as they came, all from --offset on: sshjobs read --raw --stream stdout JOB >FILE
    #[arg(long, conflicts_with_all = ["unit", "json"], requires = "stream")]
    pub raw: bool,
    /// Write a line of JSON.
    #[arg(long)]
    pub json: bool,
}

/// What positions count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UnitChoice {
    /// Finished lines.
    Lines,
    /// Characters.
    Chars,
    /// Bytes as they came.
    Bytes,
}

impl UnitChoice {
    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lines => "lines",
            Self::Chars => "characters",
            Self::Bytes => "bytes",
        }
    }
}

/// Arguments of `search`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 something matches; 1 nothing does; 2 and 255 as elsewhere.

Examples:
  sshjobs search ID 'error|failed'
  sshjobs search ID -C 5 panic")]
pub struct SearchArgs {
    /// The job.
    #[arg(add = ArgValueCandidates::new(candidates::jobs))]
    pub job: String,
    /// Regular expression; (?i) ignores case. Lines are matched without colours and other control sequences, and lines longer than
    /// max_line_bytes (64 KiB) in pieces of that length.
    pub pattern: String,
    /// Lines to show around each match, 20 at most.
    #[arg(long, short = 'C', value_name = "LINES", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=20))]
    pub context: u32,
    /// Most matches to show.
    #[arg(long, short = 'm', value_name = "MATCHES", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_matches: u32,
    /// Look only at this stream.
    #[arg(long, value_name = "STREAM", default_value = "both")]
    pub stream: StreamChoice,
    /// Write a line of JSON for each match.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `write`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sshjobs write ID yes                    the text and a newline
  sshjobs write ID --close < input        all of our stdin, then its end")]
pub struct WriteArgs {
    /// The job.
    #[arg(add = ArgValueCandidates::new(candidates::jobs))]
    pub job: String,
    /// Text to write, and a newline behind it. Without it, our stdin is written.
    pub text: Option<String>,
    /// Write no newline behind the text.
    #[arg(long)]
    pub no_newline: bool,
    /// Then end its stdin.
    #[arg(long)]
    pub close: bool,
    /// Time for which the command may take to read it.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "10s")]
    pub patience: Duration,
    /// Write a line of JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `signal`.
#[derive(Debug, Args)]
#[command(after_help = "\
The signal goes to every process of the job, over a connection of its own, and what came of it is verified on the host.

Examples:
  sshjobs signal ID                   TERM
  sshjobs signal ID INT
  sshjobs signal ID --grace 5s        TERM, and KILL to what still lives after five seconds")]
pub struct SignalArgs {
    /// The job.
    #[arg(add = ArgValueCandidates::new(candidates::jobs))]
    pub job: String,
    /// Name or number.
    #[arg(default_value = "TERM")]
    pub signal: String,
    /// What still lives after this time gets KILL.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub grace: Option<Duration>,
    /// Write a line of JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `wait`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: of one job, its own as `run` has it. Of several, 0 when all have exited with 0, else the first other one.
124 when --timeout is over first; the jobs go on.

Example:
  sshjobs wait $(sshjobs spawn web1 -- make test) && echo passed")]
pub struct WaitArgs {
    /// The jobs.
    #[arg(required = true, add = ArgValueCandidates::new(candidates::jobs))]
    pub jobs: Vec<String>,
    /// Wait for the end of any, not of all.
    #[arg(long)]
    pub any: bool,
    /// Wait for so long at most.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub timeout: Option<Duration>,
    /// Write a line of JSON for each job.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `jobs`.
#[derive(Debug, Args)]
#[command(after_help = "\
A durable job that no process follows is shown as it was last seen; tail, read, search and wait ask its host.

Examples:
  sshjobs jobs --state running
  sshjobs jobs --host web1 --json | jq -r .job_id")]
pub struct JobsArgs {
    /// On this host.
    #[arg(long, add = ArgValueCandidates::new(candidates::hosts))]
    pub host: Option<String>,
    /// With this label.
    #[arg(long)]
    pub label: Option<String>,
    /// The hosts of this fleet.
    #[arg(long, value_name = "ID", add = ArgValueCandidates::new(candidates::fleets), conflicts_with_all = ["host", "label", "state"])]
    pub fleet: Option<String>,
    /// In this state: starting, running, exited, signaled, lost, closed, refused, timed_out.
    #[arg(long)]
    pub state: Option<String>,
    /// The newest so many.
    #[arg(long, short = 'n', default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    /// Write a line of JSON for each job.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `top`.
#[derive(Debug, Args)]
#[command(after_help = "\
Above are the jobs of all sshjobs processes of this user, the newest first; below is the output of the one that is selected.
A durable job that no process follows is shown as it was last seen, until it is selected.

Keys:
  up, down, j, k   select a job                  PgUp, PgDn     scroll its output
  Enter            a fleet's members; the output alone          Esc   back
  g, G             the output's start; its end, which is followed
  /                look for a pattern            n, N           the next older, newer match
  a                answer: write a line to the job's stdin; what is typed for a password is not shown
  s                signal the job
  r                only jobs that run, or all
  ?                explain the keys              q, Ctrl-C      end; jobs go on

Examples:
  sshjobs top
  sshjobs --server https://jobs.example.com top")]
pub struct TopArgs {}

/// Arguments of `forget`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sshjobs forget ID
  sshjobs jobs --state exited -n 1000 --json | jq -r .job_id | xargs sshjobs forget")]
pub struct ForgetArgs {
    /// The jobs.
    #[arg(required = true, add = ArgValueCandidates::new(candidates::jobs))]
    pub jobs: Vec<String>,
    /// Kill what still runs first.
    #[arg(long)]
    pub force: bool,
    /// Give up only the output.
    #[arg(long)]
    pub output: bool,
    /// Write a line of JSON for each job.
    #[arg(long)]
    pub json: bool,
}

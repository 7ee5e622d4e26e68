//! Arguments of the verbs on existing jobs.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCandidates;

use super::candidates;
use super::filter::{FILTERS, FilterArgs, state};
use super::values::{Since, StreamChoice, one_host, since, time};
use sshjobs_core::jobs::Signal;
use sshjobs_wire::{ExportFormat, JobState};

/// Arguments of `tail`.
#[derive(Debug, Args)]
#[command(after_help = "\
Lines of stderr are red on a terminal. Evicted lines are counted on stderr.

Examples:
  sshjobs tail web1-7f3k9q2m                     the last ten lines
  sshjobs tail -f web1-7f3k9q2m                  follow to the end of the job
  sshjobs tail --since 1200 web1-7f3k9q2m        the lines after line 1200
  sshjobs tail --since 10m web1-7f3k9q2m         the lines of the last ten minutes
  sshjobs tail -f --until 'listening on' ID      up to a line that matches
  sshjobs tail --since 0 --json ID | jq .text    all lines, as JSON objects")]
pub struct TailArgs {
    /// The job's id, as printed by `spawn` and `jobs`; the unique start of one; or `last`.
    #[arg(add = ArgValueCandidates::new(candidates::jobs))]
    pub job: String,
    /// Follow the output until the job ends.
    #[arg(long, short)]
    pub follow: bool,
    /// Start after this line (0 is the beginning), this long ago (10m), or at this time
    /// (2026-11-23T10:00:00Z).
    #[arg(long, value_name = "LINE|TIME", value_parser = since, conflicts_with = "lines")]
    pub since: Option<Since>,
    /// Start with this many last lines.
    #[arg(long, short = 'n', value_name = "LINES", default_value_t = 10)]
    pub lines: u32,
    /// Stop after the first line that matches this regex; with -f wait for it.
    #[arg(long, value_name = "REGEX")]
    pub until: Option<String>,
    /// Show only this stream.
    #[arg(long, value_name = "STREAM", default_value = "both")]
    pub stream: StreamChoice,
    /// Print the time (UTC) before each line.
    #[arg(long)]
    pub timestamps: bool,
    /// Write one line of JSON per line.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `log`.
#[derive(Debug, Args)]
#[command(after_help = "\
On a terminal the output is shown in $PAGER (default less) with the colours of the program; lines of
stderr without colours are red. Into pipes and files goes plain text.

Examples:
  sshjobs log ID                          the whole output
  sshjobs logs -f last                    the newest job's output, followed
  sshjobs log -n 100 ID                   the last 100 lines
  sshjobs log --since 10m --grep error ID
  sshjobs log --label nightly > nightly.txt")]
pub struct LogArgs {
    /// The jobs' ids.
    #[arg(required_unless_present_any = FILTERS, value_name = "JOB", add = ArgValueCandidates::new(candidates::jobs))]
    pub jobs: Vec<String>,
    /// Follow the output until the jobs end.
    #[arg(long, short)]
    pub follow: bool,
    /// Show only this many last lines.
    #[arg(long, short = 'n', value_name = "LINES", conflicts_with = "since")]
    pub lines: Option<u32>,
    /// Start after this line, this long ago (10m), or at this time (2026-11-23T10:00:00Z).
    #[arg(long, value_name = "LINE|TIME", value_parser = since)]
    pub since: Option<Since>,
    /// Show only lines that match this regex.
    #[arg(long, short = 'g', value_name = "REGEX")]
    pub grep: Option<String>,
    /// Show only this stream.
    #[arg(long, value_name = "STREAM", default_value = "both")]
    pub stream: StreamChoice,
    /// Print the time (UTC) before each line.
    #[arg(long)]
    pub timestamps: bool,
    /// Write one line of JSON per line.
    #[arg(long)]
    pub json: bool,
    /// Don't use a pager.
    #[arg(long)]
    pub no_pager: bool,
    /// Many jobs.
    #[command(flatten)]
    pub filter: FilterArgs,
}

/// Arguments of `read`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sshjobs read ID --offset -20                        the last 20 lines
  sshjobs read ID --unit bytes --offset 0 --length 512 --stream stdout")]
pub struct ReadArgs {
    /// The job's id.
    #[arg(add = ArgValueCandidates::new(candidates::jobs))]
    pub job: String,
    /// Unit of offset and length.
    #[arg(long, value_enum, default_value = "lines")]
    pub unit: UnitChoice,
    /// Amount to skip; negative counts from the end.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub offset: i64,
    /// Amount to show. Default 1000 lines, or 8000 characters or bytes.
    #[arg(long)]
    pub length: Option<i64>,
    /// Show only this stream.
    #[arg(long, value_name = "STREAM", default_value = "both")]
    pub stream: StreamChoice,
    /// Write the raw bytes of one stream, from --offset to the end: sshjobs read --raw --stream
    /// stdout JOB >FILE
    #[arg(long, conflicts_with_all = ["unit", "json"], requires = "stream")]
    pub raw: bool,
    /// Write a line of JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `export`.
#[derive(Debug, Args)]
#[command(after_help = "\
A recording has the output with its times, and the sizes of the terminal. Typed keys are not part of
it, except where the program has echoed them.

Examples:
  sshjobs export ID -o deploy.cast && asciinema play deploy.cast
  sshjobs export ID --format asciicast-v3 -o deploy.cast     with the exit status
  sshjobs export ID --format json | jq -r .text")]
pub struct ExportArgs {
    /// The job's id, as printed by `spawn` and `jobs`; the unique start of one; or `last`.
    #[arg(add = ArgValueCandidates::new(candidates::jobs))]
    pub job: String,
    /// Format: asciicast-v2 for every player, asciicast-v3 for asciinema 3, text for the lines without
    /// control sequences, json for a line of JSON each.
    #[arg(long, value_name = "FORMAT", default_value = "asciicast-v2", value_parser = export_format)]
    pub format: ExportFormat,
    /// Write this file; - is stdout, the default.
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

fn export_format(name: &str) -> Result<ExportFormat, String> {
    let named = ExportFormat::ALL.into_iter().find(|format| format.as_str() == name);
    named.ok_or_else(|| {
        let known = ExportFormat::ALL.map(ExportFormat::as_str).join(", ");
        format!("use one of {known}")
    })
}

/// Arguments of `screen`.
#[derive(Debug, Args)]
#[command(after_help = "\
The screen is computed from the job's output; the program does not notice. `attach` lets you type.

Examples:
  sshjobs screen ID                     what a menu or an editor shows now
  sshjobs screen -f ID                  watch it until the job ends
  sshjobs screen --json ID | jq .cursor")]
pub struct ScreenArgs {
    /// The job's id; it must have a terminal (--pty, -t).
    #[arg(add = ArgValueCandidates::new(candidates::jobs))]
    pub job: String,
    /// Show each new screen until the job ends.
    #[arg(long, short)]
    pub follow: bool,
    /// Write a line of JSON per screen: rows, cursor, size, title, reversed text.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `inspect`.
#[derive(Debug, Args)]
#[command(after_help = "\
The host (Linux) describes the job's processes: what each one uses and waits for, observed for half a
second. CPU is the share of one core in that time, AGE the time since the process began.
WAITS FOR names the event that a process waits for: a child, a timer, a lock, input from a socket, a pipe
or its terminal. At most 50 processes are shown; --json has their whole figures. The last line says in a sentence why the job may be silent. For a fleet, name a member: FLEET/HOST. Commands are
withheld if they may have secrets that this process can't hide.

Of a job that has ended, it shows why: the exit of the command, a limit, a signal and whether it was sent
through sshjobs, or that the host ran out of memory. For a killed job, sshjobs asks the host; the cause stays
unknown if the host hides its log and its counters. Durable jobs also have figures: processor time, and the
peak memory of the largest process (if the host has perl).

Exit status: 0; 255 if the host of a running job can't be reached.

Examples:
  sshjobs inspect last                  why does it print nothing, or why did it end?
  sshjobs inspect --json ID | jq .why   the same for scripts, of a job that has ended
  sshjobs inspect --json ID | jq '.processes.processes[] | {pid, waits_for}'")]
pub struct InspectArgs {
    /// The job's id.
    #[arg(add = ArgValueCandidates::new(candidates::jobs))]
    pub job: String,
    /// Write one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `attach`.
#[derive(Debug, Args)]
#[command(after_help = "\
Shows the job's screen, passes all keys on, including Ctrl-C, and gives the job's terminal the size
of this one. Enter ~ . detaches; the job continues. Several people may be attached; the last size
set applies to all.

Exit codes: 0 detached; otherwise those of the command, as in run.

Examples:
  sshjobs attach ID                       sit in a job again, also after a closed laptop
  id=$(sshjobs spawn --pty --stdin web1 -- vim notes) && sshjobs attach $id")]
pub struct AttachArgs {
    /// The job's id; it must have a terminal (--pty, -t).
    #[arg(add = ArgValueCandidates::new(candidates::jobs))]
    pub job: String,
    /// Write the job's output to this terminal unfiltered. Only for hosts that you trust with your
    /// terminal.
    #[arg(long)]
    pub raw: bool,
}

/// Unit of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UnitChoice {
    /// Finished lines.
    Lines,
    /// Characters.
    Chars,
    /// Raw bytes.
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
#[command(
    after_help = "Exit codes: 0 a line matches; 1 no line matches; 2 and 255 as for other verbs.

Examples:
  sshjobs search ID 'error|failed'
  sshjobs search ID -C 5 panic"
)]
pub struct SearchArgs {
    /// The job's id.
    #[arg(add = ArgValueCandidates::new(candidates::jobs))]
    pub job: String,
    /// Regular expression; (?i) ignores case. Lines are matched without colours and other control
    /// sequences. Lines longer than max_line_bytes (64 KiB) are matched in pieces of that length.
    pub pattern: String,
    /// Lines to show around each match, at most 20.
    #[arg(long, short = 'C', value_name = "LINES", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=20))]
    pub context: u32,
    /// Maximum number of matches to show.
    #[arg(long, short = 'm', value_name = "MATCHES", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_matches: u32,
    /// Search only this stream.
    #[arg(long, value_name = "STREAM", default_value = "both")]
    pub stream: StreamChoice,
    /// Write one line of JSON per match.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `write`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sshjobs write ID yes                    the text and a newline
  sshjobs write ID --secret sudo            a secret of the configuration, at a prompt
  sshjobs write ID --close < input        all of stdin, then close it")]
pub struct WriteArgs {
    /// The job's id.
    #[arg(add = ArgValueCandidates::new(candidates::jobs))]
    pub job: String,
    /// Text to write, followed by a newline. Without it, stdin is copied.
    pub text: Option<String>,
    /// Write a secret of the configuration, followed by a newline, in place of a text. The output
    /// shows `[secret NAME]` in its place.
    #[arg(long, value_name = "NAME", conflicts_with = "text")]
    pub secret: Option<String>,
    /// Don't add a newline to the text.
    #[arg(long)]
    pub no_newline: bool,
    /// Close the job's stdin afterwards.
    #[arg(long)]
    pub close: bool,
    /// Maximum time for the command to read it.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "10s")]
    pub patience: Duration,
    /// Write a line of JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `signal`.
#[derive(Debug, Args)]
#[command(after_help = "\
The signal is sent to every process of each job, and its result is verified on the host. Jobs that a
filter selects are shown first, and on a terminal you are asked.

Examples:
  sshjobs signal ID                   TERM
  sshjobs signal ID INT
  sshjobs signal ID --grace 5s        TERM, then KILL after five seconds
  sshjobs kill --label nightly        all running jobs with this label")]
pub struct SignalArgs {
    /// The jobs' ids, and as the last word a signal: a name or a number. Default TERM.
    #[arg(required_unless_present_any = FILTERS, value_name = "JOB|SIGNAL", add = ArgValueCandidates::new(candidates::jobs))]
    pub words: Vec<String>,
    /// The signal, as an option.
    #[arg(long, short, value_name = "SIGNAL")]
    pub signal: Option<String>,
    /// Send KILL, as -s KILL.
    #[arg(short = '9', conflicts_with = "signal")]
    pub kill: bool,
    /// Send KILL to processes that are still alive after this time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub grace: Option<Duration>,
    /// Write one line of JSON per job.
    #[arg(long)]
    pub json: bool,
    /// Many jobs.
    #[command(flatten)]
    pub filter: FilterArgs,
}

impl SignalArgs {
    /// The jobs that are named, and the signal.
    pub fn target(&self) -> SignalTarget {
        let mut jobs = self.words.clone();
        let mut signal = self.signal.clone().or(self.kill.then(|| "KILL".to_owned()));
        // The only word is a job, unless a filter selects the jobs.
        let may_be_signal = signal.is_none() && (jobs.len() > 1 || self.filter.is_set());
        if may_be_signal && jobs.last().is_some_and(|word| word.parse::<Signal>().is_ok()) {
            signal = jobs.pop();
        }
        SignalTarget {
            jobs,
            signal: signal.unwrap_or_else(|| "TERM".to_owned()),
        }
    }
}

/// What is signalled, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignalTarget {
    /// Words for jobs.
    pub jobs: Vec<String>,
    /// The signal's name or number.
    pub signal: String,
}

/// Arguments of `jobs`.
#[derive(Debug, Args)]
#[command(after_help = "\
STATE is one of: waits (for input), running, queued #N (its place in its queue), starting, exit N, SIGNAL
for a job that a signal has ended, lost, closed, refused, timed out. `sshjobs inspect JOB` says why.
Columns that do not fit the terminal are left out; --json has them all.
The hosts of durable jobs that no process follows are asked for state, end and number of lines. If one does
not answer, its jobs are shown as they were last seen.

Examples:
  sshjobs jobs --failed                  what went wrong
  sshjobs jobs --waiting                 what waits for an answer: sshjobs write JOB TEXT
  sshjobs jobs --grep deploy --state running
  sshjobs ps --sort duration --watch
  sshjobs jobs --host web1 --json | jq -r .job_id")]
pub struct JobsArgs {
    /// Only jobs on this host.
    #[arg(long, value_name = "HOST", value_parser = one_host, add = ArgValueCandidates::new(candidates::hosts))]
    pub host: Option<String>,
    /// Only jobs with this label.
    #[arg(long, value_name = "LABEL")]
    pub label: Option<String>,
    /// Only the members of this fleet.
    #[arg(long, value_name = "ID", add = ArgValueCandidates::new(candidates::fleets), conflicts_with_all = ["host", "label", "state"])]
    pub fleet: Option<String>,
    /// Only jobs in this state: queued, starting, running, exited, signaled, lost, closed,
    /// refused, timed_out.
    #[arg(long, value_name = "STATE", value_parser = state)]
    pub state: Option<JobState>,
    /// Only jobs that have ended otherwise than with exit status 0.
    #[arg(long, conflicts_with_all = ["waiting", "state"])]
    pub failed: bool,
    /// Only jobs that wait for input.
    #[arg(long, conflicts_with = "state")]
    pub waiting: bool,
    /// Only jobs with this text in the id, host, label, caller or command, in upper or lower case.
    #[arg(long, short = 'g', value_name = "TEXT")]
    pub grep: Option<String>,
    /// Only jobs of this caller; yours are those of `local`.
    #[arg(long, value_name = "NAME")]
    pub caller: Option<String>,
    /// Only jobs that were started at least this long ago: 90s, 2h, 1d.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub older: Option<Duration>,
    /// Order of the jobs. Default: attention; with --json: age.
    #[arg(long, value_name = "ORDER")]
    pub sort: Option<SortBy>,
    /// Maximum number of jobs.
    #[arg(long, short = 'n', value_name = "JOBS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    /// Show all jobs, however many.
    #[arg(long, short, conflicts_with = "limit")]
    pub all: bool,
    /// Show the list again every two seconds, or every SECONDS.
    #[arg(long, value_name = "SECONDS", value_parser = time, num_args = 0..=1, default_missing_value = "2", require_equals = true, conflicts_with = "json")]
    pub watch: Option<Duration>,
    /// List notifications of jobs and whether they have arrived, not the jobs.
    #[arg(long, conflicts_with_all = ["host", "label", "fleet", "state", "failed", "waiting", "grep", "caller", "older", "watch"])]
    pub notify: bool,
    /// Don't ask hosts for the state of durable jobs that no process follows; show the last known
    /// state.
    #[arg(long)]
    pub cached: bool,
    /// Write one line of JSON per job.
    #[arg(long)]
    pub json: bool,
}

/// Order of a list of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SortBy {
    /// Those that wait for input first, then those that run, those in queues, and the newest others.
    Attention,
    /// The newest first.
    Age,
    /// By host.
    Host,
    /// By state.
    State,
    /// The longest first.
    Duration,
    /// Those with the most lines first.
    Lines,
}

/// Arguments of `top`.
#[derive(Debug, Args)]
#[command(after_help = "\
The upper part lists the jobs of all sshjobs processes of this user: those that wait for input, those
that run, those in queues, and the newest others. The lower part shows the output of the selected job.
A durable job that no process follows is shown as it was last seen, until it is selected.

Keys:
  up, down, j, k   select a job               PgUp, PgDn   scroll its output
  Enter, Esc       open a fleet or the output; back
  g, G or f        the output's start; its end, which is followed
  v                the screen of a terminal job, or its lines
  /, n, N          look for a pattern; newer match, older match
  l, t             all output in the pager; sit in the job's terminal
  a                answer: write a line to the job's stdin, hidden for passwords
  m, M             mark a job; unmark all
  s, d, y          signal, delete the job or the marked ones; copy the id
  i                its processes and what they wait for, or why it ended
  Q                queued jobs, and what each waits for
  A                calls that wait for an approval: read the exact call to its end, then approve or
                   refuse it; n and N show the others
  F, o, r          only jobs with a word; another order; only jobs that run
  ?                explain the keys           q, Ctrl-C    quit; jobs continue

Examples:
  sshjobs top
  sshjobs --server https://jobs.example.com top")]
pub struct TopArgs {}

/// Arguments of `forget`.
#[derive(Debug, Args)]
#[command(after_help = "\
A filter selects only jobs that have ended, unless you use --force. They are shown first, and on a
terminal you are asked.

Examples:
  sshjobs forget ID
  sshjobs forget --older 7d               ended jobs that were started at least a week ago
  sshjobs forget --state exited --host web1 --yes")]
pub struct ForgetArgs {
    /// The jobs' ids.
    #[arg(required_unless_present_any = FILTERS, value_name = "JOB", add = ArgValueCandidates::new(candidates::jobs))]
    pub jobs: Vec<String>,
    /// Kill the jobs first if they still run.
    #[arg(long)]
    pub force: bool,
    /// Delete only the output.
    #[arg(long)]
    pub output: bool,
    /// Write one line of JSON per job.
    #[arg(long)]
    pub json: bool,
    /// Many jobs.
    #[command(flatten)]
    pub filter: FilterArgs,
}

//! The verb search, in the files of a host: ripgrep if the host has it, else grep.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::search::{MatchEntry, SearchReply, SearchRequest};
use super::search_output::{MatchFormat, SearchOutput};
use crate::Service;
use crate::clamp::{Clamped, Clamps};
use crate::error::{Code, Error};
use crate::verbs::look::not_read_only;
use crate::verbs::run::after_start;
use crate::verbs::tail::{MOST_BYTES, regex};
use sshjobs_core::jobs::{Look, ReadableJob, Verb, clean};

/// Longest search, with the login before.
const LIMIT: Duration = Duration::from_secs(40);
/// Status of a shell that has not found a program.
const NO_PROGRAM: u32 = 127;
/// Status of a search that has found nothing.
const NOTHING: u32 = 1;
/// Words of a message about a path that does not exist.
const NO_FILE: &str = "No such file or directory";
/// Messages of a grep without patterns as of perl.
const UNKNOWN_OPTION: [&str; 4] = [
    "invalid option",
    "unrecognized option",
    "not supported",
    "compiled",
];
/// Bytes of stderr that are kept for the last message.
const MOST_STDERR: usize = 4 << 10;

/// A program that searches, in the order in which they are tried.
#[derive(Clone, Copy, Debug)]
enum Searcher {
    Ripgrep,
    /// `grep -P`, whose patterns are closest to ours.
    PerlGrep,
    PlainGrep,
}

/// Why a search has not returned all matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Full,
    OutOfTime,
    Closed,
    /// Its output came faster than it was read.
    Lost,
    LongLines,
}

impl Cut {
    fn note(self) -> &'static str {
        match self {
            Self::Full => "there are more matches: narrow the path or the pattern",
            Self::OutOfTime => "time was up, and there may be more matches: narrow the path",
            Self::Closed => "the server closes, and there may be more matches: search again",
            Self::Lost => "some matches were lost: narrow the path or the pattern",
            Self::LongLines => "matches in lines of more than 4 MiB are left out",
        }
    }
}

/// Output of a search.
#[derive(Default)]
struct Printed {
    matches: Vec<MatchEntry>,
    /// Why it is not the whole output, if it is not.
    cut: Option<Cut>,
    status: Option<u32>,
    /// The last line of stderr.
    last_message: String,
    /// Whether the program does not know an option.
    is_unknown_option: bool,
}

impl Service {
    /// Searches the files below a path of a host. Binary files are skipped, unless the path names one.
    pub(in crate::verbs) async fn search_files(
        &self,
        request: SearchRequest,
    ) -> Result<SearchReply, Error> {
        if request.path.is_none() || !request.job_id.is_empty() {
            return Err(Error::invalid(
                "a search in files needs host and path",
                "name host and path, or job_id for the output of a job",
            ));
        }
        if request.context.is_some()
            || request.since_line_no != 0
            || request.until_line_no.is_some()
        {
            return Err(Error::invalid(
                "context, since_line_no and until_line_no are for the output of a job",
                "omit them; ssh_get reads the lines around a match",
            ));
        }
        let host = request.host.as_deref().unwrap_or_default();
        if let Some(replica) = self.replica_of_host(host).await? {
            return self.perform_at(&replica, "search", &request).await;
        }
        // Before a host is asked, so that a mistake is reported as one.
        regex("pattern", &request.pattern)?;
        let mut clamps = Clamps::default();
        let most = clamps.size("max_matches", request.max_matches.unwrap_or(50), 1..=1000)?;
        let max_bytes = request.max_bytes.unwrap_or(i64::from(self.defaults().max_bytes));
        let bytes = clamps.size("max_bytes", max_bytes, 1..=MOST_BYTES)?;
        let deadline = Instant::now() + LIMIT;
        for searcher in [Searcher::Ripgrep, Searcher::PerlGrep, Searcher::PlainGrep] {
            let printed =
                Box::pin(self.search_with(searcher, &request, (most, bytes), deadline)).await?;
            let is_missing = match searcher {
                Searcher::Ripgrep => printed.status == Some(NO_PROGRAM),
                Searcher::PerlGrep => printed.is_unknown_option,
                Searcher::PlainGrep => false,
            };
            if is_missing && printed.matches.is_empty() {
                continue;
            }
            return printed.into_reply(host, clamps.0);
        }
        unreachable!("the last searcher is not passed over")
    }

    async fn search_with(
        &self,
        searcher: Searcher,
        request: &SearchRequest,
        (most, bytes): (usize, usize),
        deadline: Instant,
    ) -> Result<Printed, Error> {
        let host = request.host.as_deref().unwrap_or_default();
        let path = from_home(request.path.as_deref().unwrap_or_default());
        let look =
            Look::new(&searcher.words(&request.pattern, path), None).map_err(not_read_only)?;
        let job = Box::pin(self.jobs.look(host, look)).await?;
        let id = job.id().to_owned();
        let job = job.readable(Verb::Look).await.map_err(|error| after_start(&id, error.into()))?;
        let format = searcher.format();
        let reading = self.unless_closed(printed(&job, format, (most, bytes), deadline)).await;
        let printed = reading.unwrap_or_else(|| Printed {
            cut: Some(Cut::Closed),
            ..Printed::default()
        });
        if printed.cut.is_some() {
            job.kill().await.ok();
        }
        Ok(printed)
    }
}

impl Printed {
    fn into_reply(self, host: &str, clamped: Vec<Clamped>) -> Result<SearchReply, Error> {
        let has_none = self.matches.is_empty();
        if has_none && self.is_unknown_option {
            let said = self.last_message;
            return Err(Error::new(
                Code::Unsupported,
                format!("the grep of {host} can't tell names from lines: {said}"),
                "use ssh_run with its grep, or install ripgrep there",
            ));
        }
        let has_failed = self.status.is_some_and(|status| status > NOTHING);
        if has_none && has_failed && self.last_message.contains(NO_FILE) {
            return Err(Error::new(
                Code::NoSuchFile,
                format!("the files can't be searched: {}", self.last_message),
                "look at the path with ssh_get",
            ));
        }
        let unread =
            has_failed.then(|| format!("some files could not be read: {}", self.last_message));
        Ok(SearchReply {
            matches: self.matches,
            last_line_no: 0,
            has_more: self.cut.is_some(),
            dropped_lines: 0,
            note: self.cut.map(|cut| cut.note().to_owned()).or(unread),
            clamped,
        })
    }
}

impl Searcher {
    fn format(self) -> MatchFormat {
        match self {
            Self::Ripgrep => MatchFormat::Json,
            Self::PerlGrep | Self::PlainGrep => MatchFormat::NulAfterPath,
        }
    }

    fn words(self, pattern: &str, path: &str) -> Vec<String> {
        // Our patterns ignore case by `(?i)`, `grep -E` by an option.
        let (ignores_case, plain) = match pattern.strip_prefix("(?i)") {
            Some(rest) => (true, rest),
            None => (false, pattern),
        };
        let (program, options, pattern) = match self {
            Self::Ripgrep => ("rg", "--json", pattern),
            Self::PerlGrep => ("grep", "-rnHIZP", pattern),
            Self::PlainGrep if ignores_case => ("grep", "-rnHIZEi", plain),
            Self::PlainGrep => ("grep", "-rnHIZE", pattern),
        };
        let all: &[&str] = match self {
            // As grep: also hidden files, and those that .gitignore names.
            Self::Ripgrep => &["--hidden", "--no-ignore", "--line-buffered"],
            Self::PerlGrep | Self::PlainGrep => &["--line-buffered"],
        };
        // In one word, because it may begin with a dash.
        let pattern = format!("--regexp={pattern}");
        let words = [&[program, options], all, &[&pattern, "--", path]].concat();
        words.into_iter().map(str::to_owned).collect()
    }
}

/// Reads the output of a search, up to enough matches or its end.
async fn printed(
    job: &ReadableJob,
    format: MatchFormat,
    (most, bytes): (usize, usize),
    deadline: Instant,
) -> Printed {
    let mut printed = Printed::default();
    let mut follow = job.follow();
    let mut output = SearchOutput::new(format);
    let mut stderr = Vec::new();
    let mut taken_bytes = 0;
    loop {
        let Ok(next) = timeout_at(deadline, follow.next()).await else {
            printed.cut = Some(Cut::OutOfTime);
            return printed;
        };
        stderr.extend_from_slice(&next.stderr);
        let kept_from = stderr.len().saturating_sub(MOST_STDERR);
        stderr.drain(..kept_from);
        // What was evicted may have had matches, and the rest would be read as part of another.
        if next.dropped_bytes > 0 {
            printed.cut = Some(Cut::Lost);
            return printed;
        }
        for found in output.take(&next.stdout) {
            taken_bytes += found.text.len() + found.path.as_ref().map_or(0, String::len);
            let is_full = taken_bytes > bytes && !printed.matches.is_empty();
            if printed.matches.len() == most || is_full {
                printed.cut = Some(Cut::Full);
                return printed;
            }
            printed.matches.push(found);
        }
        if next.outcome.is_some() {
            printed.status = crate::Standing::of(&job.status()).exit_status;
            // Its time limit has ended it.
            printed.cut = match printed.status {
                None => Some(Cut::OutOfTime),
                Some(_) => output.has_skipped_lines().then_some(Cut::LongLines),
            };
            printed.last_message = last_line(&stderr);
            printed.is_unknown_option = has_unknown_option(&stderr);
            return printed;
        }
    }
}

/// A path as a program without a shell understands it: `~/x` is x in the home directory, where it runs.
fn from_home(path: &str) -> &str {
    match path.strip_prefix('~') {
        Some("" | "/") => ".",
        Some(below) if below.starts_with('/') => below.trim_start_matches('/'),
        Some(_) | None => path,
    }
}

fn has_unknown_option(stderr: &[u8]) -> bool {
    let said = String::from_utf8_lossy(stderr);
    UNKNOWN_OPTION.iter().any(|words| said.contains(words))
}

/// The last line that is not empty.
fn last_line(stderr: &[u8]) -> String {
    let lines = stderr.split(|byte| *byte == b'\n').rev();
    let mut said = lines.filter(|line| !line.trim_ascii().is_empty());
    said.next().map(|line| clean(line).into_owned()).unwrap_or_default()
}

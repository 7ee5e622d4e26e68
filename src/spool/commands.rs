use std::fmt::Write as _;
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

const SCRIPT: &str = include_str!("spool.sh");
const FOLLOWER: &str = include_str!("follow.pl");

/// What every answer of the script begins with.
pub const RESULT: &str = "sshjobs-spool ";

/// The name under which the scripts are installed: another version has another.
fn name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let hash = Sha256::new().chain_update(SCRIPT).chain_update(FOLLOWER).finalize();
        hash.iter().take(8).fold(String::new(), |mut name, byte| {
            write!(name, "{byte:02x}").expect("a string takes all");
            name
        })
    })
}

/// The scripts as they are sent to a host that lacks them.
pub fn scripts() -> String {
    format!("{SCRIPT}{FOLLOWER}")
}

/// An exec string that every login shell reads alike: no quotes, backslashes, `!` or line ends within the quotes.
fn exec(text: &str) -> String {
    debug_assert!(!text.contains(['\'', '\\', '!', '\n']), "{text}");
    format!("exec /bin/sh -c '{text}'")
}

/// Makes the spool ready on a host. Answers `ready`; or `send` first, when it wants the [`scripts`] on stdin.
///
/// Several may do so at once: each file is complete before it has its name.
///
/// The directory is `$XDG_STATE_HOME/sshjobs/spool` or, where the home can't be written, one of the user's own in /var/tmp.
pub fn install() -> String {
    let (name, script, follower) = (name(), SCRIPT.len(), FOLLOWER.len());
    exec(&format!(
        "umask 077; {{ read -r H </proc/sys/kernel/hostname; }} 2>/dev/null || H=$(uname -n); \
         grep -qs ^KillUserProcesses=yes /etc/systemd/logind.conf /etc/systemd/logind.conf.d/*.conf && {{ echo {RESULT}logout; exit; }}; \
         for d in \"${{XDG_STATE_HOME:-$HOME/.local/state}}/sshjobs\" \"/var/tmp/sshjobs-$(id -u)\"; do \
         why=$(mkdir -p \"$d/spool/$H/f\" 2>&1) && [ -O \"$d\" ] && [ -d \"$d/spool\" ] && why=$(touch \"$d/spool/$H/try\" 2>&1) || continue; \
         f=\"$d/spool/{name}\"; [ -f \"$f\" ] || {{ echo {RESULT}send; \
         dd bs=1 count={script} of=\"$f.$$\" 2>/dev/null && dd bs=1 count={follower} of=\"$f.pl.$$\" 2>/dev/null; \
         [ $(($(wc -c <\"$f.$$\") + $(wc -c <\"$f.pl.$$\"))) = {} ] && mv \"$f.pl.$$\" \"$f.pl\" && mv \"$f.$$\" \"$f\" || \
         {{ rm -f \"$f.$$\" \"$f.pl.$$\"; echo {RESULT}error it could not be written; exit; }}; }}; \
         echo {RESULT}ready; exit; done; echo \"{RESULT}error ${{why##*: }}\"",
        script + follower
    ))
}

/// Runs a verb of the script. Answers `missing` where it is not installed.
///
/// What another user has put into /var/tmp is never run: directories and script must be the user's own.
fn verb(words: &str) -> String {
    let name = name();
    exec(&format!(
        "d=${{XDG_STATE_HOME:-$HOME/.local/state}}/sshjobs; f=$d/spool/{name}; \
         [ -f \"$f\" ] || {{ d=/var/tmp/sshjobs-$(id -u); f=$d/spool/{name}; }}; \
         [ -f \"$f\" ] && [ -O \"$d\" ] && [ -O \"$d/spool\" ] && [ -O \"$f\" ] || {{ echo {RESULT}missing; exit 1; }}; \
         set -- \"$d\" {words}; sj_F=$f; . \"$f\""
    ))
}

/// Starts a job when its [`Order::lines`](super::Order::lines) come on stdin; it may be run ahead, and waits for them then.
pub fn start() -> String {
    verb("start")
}

/// Follows jobs; [`FollowFrom::lines`] go to its stdin, which must stay open. What it prints is for [`Frames`](super::Frames).
pub fn follow(follower: &str) -> String {
    verb(&format!("follow {follower}"))
}

/// Writes to a job's stdin the bytes that come on stdin, behind `offset` bytes. Answers `at N`, also when this writer has written them
/// before; `moved N` when stdin has come to another place; `busy` or `closed`.
pub fn write(job: &str, (offset, length): (u64, usize), writer: &str) -> String {
    verb(&format!("write {job} {offset} {length} {writer}"))
}

/// Ends a job's stdin. Answers `closed`, or `busy` while a write waits.
pub fn eof(job: &str) -> String {
    verb(&format!("eof {job}"))
}

/// Takes note of a signal that is about to be sent to a job.
pub fn note_signal(job: &str, signal: &str) -> String {
    verb(&format!("killreq {job} {signal}"))
}

/// Removes the spools of jobs that do not run.
pub fn forget(jobs: &[&str]) -> String {
    verb(&format!("forget {}", jobs.join(" ")))
}

/// Removes the spools of jobs that ended more than so many days ago.
pub fn sweep(days: u64) -> String {
    verb(&format!("sweep {days}"))
}

/// Where a follower begins: a job, and how many bytes of its streams are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowFrom {
    /// The job.
    pub job: String,
    /// Bytes of stdout.
    pub stdout: u64,
    /// Bytes of stderr.
    pub stderr: u64,
}

impl FollowFrom {
    /// What a follower reads first.
    pub fn lines(jobs: &[Self]) -> String {
        let line = |Self { job, stdout, stderr }: &Self| format!("{job} {stdout} {stderr}\n");
        jobs.iter().map(line).chain([".\n".to_owned()]).collect()
    }
}

/// What the script says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// The scripts are to be sent.
    Send,
    /// The scripts are not installed.
    Missing,
    /// So many bytes of stdin are written.
    At(u64),
    /// Nothing was written: stdin has come to this place.
    Moved(u64),
    /// A write still waits for the job to read.
    Busy,
    /// Stdin has ended.
    Closed,
    /// The host can't do it.
    Unsupported(String),
    /// It failed.
    Failed(String),
}

impl Answer {
    /// Finds the last answer in what a command printed: a login shell's startup files may have said something, too.
    pub fn parse(printed: &str) -> Option<Self> {
        let line = printed.lines().rev().find_map(|line| line.strip_prefix(RESULT))?;
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        Some(match word {
            "ok" | "ready" => Self::Done,
            "send" => Self::Send,
            "missing" => Self::Missing,
            "at" => Self::At(rest.trim().parse().ok()?),
            "moved" => Self::Moved(rest.trim().parse().ok()?),
            "busy" => Self::Busy,
            "closed" => Self::Closed,
            "unsupported" => Self::Unsupported(rest.to_owned()),
            "logout" => Self::Unsupported(
                "logind ends all processes at logout there (KillUserProcesses=yes)".to_owned(),
            ),
            "error" => Self::Failed(rest.to_owned()),
            _ => return None,
        })
    }
}

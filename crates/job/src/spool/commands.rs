//! The exec strings for the script on a host, and its answers.

use std::fmt::Write as _;
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

const SCRIPT: &str = include_str!("spool.sh");
const FOLLOWER: &str = include_str!("follow.pl");

/// Prefix of every answer of the script.
pub const RESULT: &str = "sshjobs-spool ";

/// Name under which the scripts are installed. Each version has its own.
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

/// The scripts, in the form in which they are sent to a host that lacks them.
pub fn scripts() -> String {
    format!("{SCRIPT}{FOLLOWER}")
}

/// An exec string that every login shell parses alike: `text` has no quotes, backslashes, `!` or
/// line ends.
fn exec(text: &str) -> String {
    debug_assert!(!text.contains(['\'', '\\', '!', '\n']), "{text}");
    format!("{EXEC}{text}'")
}

/// Start of every exec string.
const EXEC: &str = "exec /bin/sh -c '";

/// Prepares the spool on a host. Answers `ready`, or `send` first if it needs the [`scripts`] on
/// stdin.
///
/// Several may run at once: each file is complete before it gets its name.
///
/// The directory is `$XDG_STATE_HOME/sshjobs/spool` or, if the home can't be written, a directory
/// of the user in /var/tmp, where others may have made it: never through a link.
pub fn install() -> String {
    let name = name();
    let script = SCRIPT.len();
    let follower = FOLLOWER.len();
    // The script gets its name last, because its existence means that both are installed.
    // dd copies single bytes, so that it takes exactly the first script from stdin.
    exec(&format!(
        "umask 077; {{ read -r H </proc/sys/kernel/hostname; }} 2>/dev/null || H=$(uname -n); \
         grep -qs ^KillUserProcesses=yes /etc/systemd/logind.conf /etc/systemd/logind.conf.d/*.conf && {{ echo {RESULT}logout; exit; }}; \
         for d in \"${{XDG_STATE_HOME:-$HOME/.local/state}}/sshjobs\" \"/var/tmp/sshjobs-$(id -u)\"; do \
         taken=; case $d in /var/tmp/*) if [ -h \"$d\" ]; then taken=1; elif [ -O \"$d\" ]; then :; elif [ -e \"$d\" ]; then taken=1; fi ;; esac; \
         if [ -n \"$taken\" ]; then why=\"$d is a link or belongs to another user\"; continue; fi; \
         why=$(mkdir -p \"$d/spool/$H/f\" 2>&1) && [ -O \"$d\" ] && [ -d \"$d/spool\" ] && why=$(touch \"$d/spool/$H/try\" 2>&1) || continue; \
         f=\"$d/spool/{name}\"; [ -f \"$f\" ] || {{ echo {RESULT}send; \
         dd bs=1 count={script} of=\"$f.$$\" 2>/dev/null && dd bs=1 count={follower} of=\"$f.pl.$$\" 2>/dev/null; \
         [ $(($(wc -c <\"$f.$$\") + $(wc -c <\"$f.pl.$$\"))) = {} ] && mv \"$f.pl.$$\" \"$f.pl\" && mv \"$f.$$\" \"$f\" || \
         {{ rm -f \"$f.$$\" \"$f.pl.$$\"; echo {RESULT}error it could not be written; exit; }}; }}; \
         echo {RESULT}ready; exit; done; echo \"{RESULT}error ${{why##*: }}\"",
        script + follower
    ))
}

/// Runs a verb of the script. Answers `missing` if it is not installed.
///
/// A script from another user in /var/tmp is never run: directories and script must belong to the
/// user.
fn verb(words: &str) -> String {
    let name = name();
    // The shell sources the script, which saves the host a process.
    exec(&format!(
        "d=${{XDG_STATE_HOME:-$HOME/.local/state}}/sshjobs; f=$d/spool/{name}; \
         [ -f \"$f\" ] || {{ d=/var/tmp/sshjobs-$(id -u); f=$d/spool/{name}; [ -h \"$d\" ] && {{ echo {RESULT}missing; exit 1; }} || :; }}; \
         [ -f \"$f\" ] && [ -O \"$d\" ] && [ -O \"$d/spool\" ] && [ -O \"$f\" ] || {{ echo {RESULT}missing; exit 1; }}; \
         set -- \"$d\" {words}; sj_F=$f; . \"$f\""
    ))
}

/// The right of a machine of a cluster to give a host orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The cluster and its name for the host: ASCII letters and digits.
    pub name: String,
    /// Grows each time that another machine takes the host over.
    pub token: u64,
}

/// The same command of this machine. The host answers `fenced`, and does nothing, once it has seen
/// a newer token under the fence's name.
pub fn fenced(command: &str, fence: &Fence) -> String {
    let Fence { name, token } = fence;
    command.replacen(EXEC, &format!("{EXEC}sj_K={name}; sj_T={token}; "), 1)
}

/// Starts a job when its [`SpoolOrder::lines`](super::SpoolOrder::lines) arrive on stdin.
pub fn start() -> String {
    verb("start")
}

/// Follows jobs. [`FollowFrom::lines`] or [`FollowFrom::states_only`] go to its stdin, which must stay
/// open.
/// [`FrameReader`](super::FrameReader) parses its output.
pub fn follow(follower: &str) -> String {
    verb(&format!("follow {follower}"))
}

/// Writes the bytes on stdin to a job's stdin, after `offset` bytes. Answers `at N`, also if this
/// writer has written them before; `moved N` if stdin has another offset; `busy` or `closed`.
pub fn write(job: &str, offset: u64, length: usize, writer: &str) -> String {
    verb(&format!("write {job} {offset} {length} {writer}"))
}

/// Closes a job's stdin. Answers `closed`, or `busy` while a write waits.
pub fn eof(job: &str) -> String {
    verb(&format!("eof {job}"))
}

/// Sets the size of a job's terminal, which its program learns by SIGWINCH. Answers `closed` if the
/// job has ended, and `busy` if it has no terminal yet.
pub fn resize(job: &str, cols: u32, rows: u32) -> String {
    verb(&format!("resize {job} {cols} {rows}"))
}

/// Notes that a signal is about to be sent to a job.
pub fn note_signal(job: &str, signal: &str) -> String {
    verb(&format!("killreq {job} {signal}"))
}

/// Deletes the spools of jobs that do not run.
pub fn forget(jobs: &[&str]) -> String {
    verb(&format!("forget {}", jobs.join(" ")))
}

/// Deletes the spools of jobs that ended more than this many days ago.
pub fn sweep(days: u64) -> String {
    verb(&format!("sweep {days}"))
}

/// Maximum bytes that are read for [`count_lines`]: a look at a list must be short.
const MOST_COUNTED: u64 = 256 << 20;

/// Prints a line `lines JOB NUMBER` for each job whose output on the host was counted; see [`counted_lines`]. Needs
/// none of the scripts.
pub fn count_lines(jobs: &[&str]) -> String {
    exec(&format!(
        "{{ read -r H </proc/sys/kernel/hostname; }} 2>/dev/null || H=$(uname -n); left={MOST_COUNTED}; \
         for d in \"${{XDG_STATE_HOME:-$HOME/.local/state}}/sshjobs\" \"/var/tmp/sshjobs-$(id -u)\"; do \
         [ -O \"$d\" ] && cd \"$d/spool/$H\" 2>/dev/null || continue; \
         for j in {}; do [ -f \"$j/out\" ] && [ -f \"$j/err\" ] || continue; n=0; for f in \"$j/out\" \"$j/err\"; do \
         left=$((left - $(wc -c <\"$f\"))); [ $left -ge 0 ] || exit 0; n=$((n + $(wc -l <\"$f\"))); \
         if [ -f \"$j/exit\" ] && [ -n \"$(tail -c 1 \"$f\")\" ]; then n=$((n + 1)); fi; done; \
         echo \"lines $j $n\"; done; done",
        jobs.join(" ")
    ))
}

/// The number of lines of each job, from the output of [`count_lines`].
pub fn counted_lines(printed: &str) -> impl Iterator<Item = (&str, u64)> {
    printed.lines().filter_map(|line| {
        let (job, number) = line.strip_prefix("lines ")?.split_once(' ')?;
        Some((job, number.parse().ok()?))
    })
}

/// Gives a job devices of its host, all or none. Answers `taken` if another job has one of them.
pub fn claim_gpus(job: &str, ids: &[String]) -> String {
    verb(&format!("claim {job} {}", ids.join(" ")))
}

/// Prints the load of a host, its GPUs, their processes and the jobs that have them; see [`parse_load`](crate::parse_load) and
/// [`parse_gpus`](crate::parse_gpus). Needs none of the scripts.
pub fn capacity() -> String {
    exec(
        "{ read -r l _ </proc/loadavg; } 2>/dev/null && echo \"load $l $(getconf _NPROCESSORS_ONLN 2>/dev/null)\"; \
         t=; if command -v timeout >/dev/null 2>&1; then t=\"timeout 10\"; fi; \
         if command -v nvidia-smi >/dev/null 2>&1; then \
         o=$($t nvidia-smi --query-gpu=uuid,name,memory.total,memory.used,utilization.gpu,temperature.gpu \
         --format=csv,noheader,nounits 2>/dev/null) || echo \"failed $?\"; \
         echo \"$o\" | while IFS= read -r l; do echo \"gpu $l\"; done; \
         $t nvidia-smi --query-compute-apps=gpu_uuid,pid --format=csv,noheader,nounits 2>/dev/null | \
         while IFS= read -r l; do echo \"app $l\"; done; \
         elif command -v rocm-smi >/dev/null 2>&1; then \
         echo \"rocm $($t rocm-smi --showproductname --showmeminfo vram --showuse --showtemp --json 2>/dev/null)\"; fi; \
         { read -r H </proc/sys/kernel/hostname; } 2>/dev/null || H=$(uname -n); \
         for d in \"${XDG_STATE_HOME:-$HOME/.local/state}/sshjobs\" \"/var/tmp/sshjobs-$(id -u)\"; do \
         [ -O \"$d\" ] && cd \"$d/spool/$H/gpu\" 2>/dev/null || continue; \
         for c in */*; do [ -f \"$c\" ] || continue; j=${c#*/}; \
         [ -f \"../$j/exit\" ] && continue; p=; { read -r p _ <\"../$j/sup\"; } 2>/dev/null; \
         if [ -n \"$p\" ]; then kill -0 \"$p\" 2>/dev/null || continue; \
         elif [ -n \"$(find \"$c\" -mmin +1 2>/dev/null)\" ]; then continue; fi; \
         echo \"claim ${c%/*} $j\"; done; done",
    )
}

/// Where a follower starts: a job, and the known bytes of its streams.
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
    /// The first input of a follower.
    pub fn lines(jobs: &[Self]) -> String {
        jobs.iter()
            .map(
                |Self {
                     job,
                     stdout,
                     stderr,
                 }: &Self| format!("{job} {stdout} {stderr}\n"),
            )
            .chain([".\n".to_owned()])
            .collect()
    }

    /// The first input of a follower that only reports states and sends no output.
    pub fn states_only<'a>(jobs: impl IntoIterator<Item = &'a str>) -> String {
        jobs.into_iter()
            .map(|job| format!("{job} - -\n"))
            .chain([".\n".to_owned()])
            .collect()
    }
}

/// An answer of the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpoolReply {
    /// The request succeeded.
    Done,
    /// The job was started and added to the named follower.
    Told,
    /// The scripts must be sent.
    Send,
    /// The scripts are not installed.
    Missing,
    /// This many bytes of stdin are written.
    At(u64),
    /// Nothing was written: stdin has this offset.
    Moved(u64),
    /// A write still waits for the job to read.
    Busy,
    /// Stdin is closed.
    Closed,
    /// Another machine has taken the host over.
    Fenced,
    /// The user was not changed: why, the exit status, and the program's words.
    NotBecome(String),
    /// Another job has what was asked for.
    Taken,
    /// The host does not support it.
    Unsupported(String),
    /// It failed.
    Failed(String),
}

impl SpoolReply {
    /// Finds the last answer in a command's output: a login shell's startup files may have printed
    /// something, too.
    pub fn parse(printed: &str) -> Option<Self> {
        let line = printed.lines().rev().find_map(|line| line.strip_prefix(RESULT))?;
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        Some(match word {
            "ok" if rest == "told" => Self::Told,
            "ok" | "ready" => Self::Done,
            "send" => Self::Send,
            "missing" => Self::Missing,
            "at" => Self::At(rest.trim().parse().ok()?),
            "moved" => Self::Moved(rest.trim().parse().ok()?),
            "busy" => Self::Busy,
            "closed" => Self::Closed,
            "taken" => Self::Taken,
            "fenced" => Self::Fenced,
            "become" => Self::NotBecome(rest.to_owned()),
            "unsupported" => Self::Unsupported(rest.to_owned()),
            "logout" => Self::Unsupported(
                "logind ends all processes at logout there (KillUserProcesses=yes)".to_owned(),
            ),
            "error" => Self::Failed(rest.to_owned()),
            _ => return None,
        })
    }
}

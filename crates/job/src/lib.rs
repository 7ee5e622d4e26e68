//! Jobs, without a network.
//!
//! A [`Job`] is one run of one command. Its [`Log`] is the ring of its output plus its outcome. The
//! log is in a `watch`, so a reader that waits for a state can't come too late. This room also has
//! the shell text with which a job runs on a host ([`ExecPlan`], [`kill_script`]). It does not use
//! `ssh`, which sends that text.

mod announced;
mod archive;
mod becomes;
mod caller;
mod cursors;
mod end_cause;
mod fetch_pattern;
mod fleet;
mod gpus;
mod id;
mod job;
mod job_tree;
mod keeping;
mod key_presses;
mod log;
pub mod notify;
mod outcome;
mod pacing;
mod processes;
mod reach;
mod reading;
mod restart;
mod screen;
mod secret_uses;
mod shell;
mod signal;
mod span;
mod spec;
pub mod spool;
mod stored_output;
mod turn;
mod usage;

pub use announced::{
    Announcements, BECOME_PASSWORD, BecomeRefusal, Gate, GateStep, Greeted, Greeting, MachineId,
    ProgramEnd, repeats_our_command,
};
pub use archive::{
    Archive, Coverage, LineSieve, RecordedPiece, RecordingPlace, Skimmed, StoredPieces,
};
pub use becomes::{BadBecome, Become, BecomeMethod};
pub use caller::{Caller, Scope};
pub use cursors::{CursorMove, CursorName, Cursors, Moved, TooManyCursors, may_move};
pub use end_cause::{
    EndCause, EndEvidence, EndFacts, KilledProcess, MemoryEvidence, MemoryKills, PostMortem,
    ResourceUse, SentSignal, SignalNote, end_by_host_clock,
};
pub use fetch_pattern::{BadFetchPattern, FetchPattern};
pub use fleet::{
    Fleet, FleetCounts, FleetPlan, FleetSummary, MOST_NAMES, Member, MemberEnd, MemberGroup,
    MemberProgress, MemberResult, PrintedSummary, RangeError, Rollout, StopAfter, fold,
    holds_address, prefixed, split_old_line, unfold, words,
};
pub use gpus::{
    BadGpuRequest, Gpu, GpuKind, GpuRequest, parse_gpu_failure, parse_gpus, parse_load,
    visible_gpus,
};
pub use id::{JobId, Nonce};
pub use job::{Job, JobIdentity, Reached};
pub use job_tree::JobTree;
pub use keeping::{Batch, EndOfJob, OutputStore, Storage, StoreLoad};
pub use key_presses::key_bytes;
pub use log::{
    Backlog, Controls, FarEnd, FarEndError, FarEvent, Log, LogEvent, Past, Phase, Status, wall_now,
};
pub use outcome::{Exit, LostWhy, Outcome};
pub use reading::{Matching, TooSlow};
pub use shell::{
    AwaitsStdin, ControlLine, ExecPlan, KillReport, Left, PlanError, ProcessGroup, Reach,
    awaits_stdin_script, become_command, control_request, control_script, inspect_script,
    kill_script, post_mortem_script, shell_probes,
};

pub use log::{End, LogChange, Recorded, Recorder};
pub use processes::{
    Awaited, AwaitedFile, LONGEST_COMMAND, Process, Processes, Termios, Transferred,
};
pub use reading::LONGEST_PATIENCE;
pub use reading::{
    JobBytes, PARTIAL_SHOWN, Positions, ReturnedBecause, SearchResult, SilenceFrom, StreamPiece,
    Tail, Wait, shown_end,
};
pub use restart::{BadRestart, EarlyWarning, Restart, RestartAfter, RetryCondition};
pub use screen::{DrawnUpTo, JobScreen};
pub use secret_uses::{SecretFingerprint, SecretUses};
pub use shell::{
    LoginShell, for_shell, from_home, inert_bytes, interpreter_of, quote, quote_word,
    unquote_words, whole_script,
};
pub use signal::{Kill, Signal, UnknownSignal};
pub use span::{LineRange, OutputSpan, SpanStart};
pub use spec::{
    CommandShell, Draft, JobFacts, JobSpec, Pace, SCRIPT, SpecError, Stdin, TemplateCall, Terminal,
    check_key, check_word,
};
pub use turn::{Turn, is_queue_name};
pub use usage::{GpuUsage, UsageSample, UsageSeries};

//! Floor 1: what a job is, without a network.
//!
//! A [`Job`] is one run of one command. Its [`Log`] is the ring of its output plus what became of it; the log sits in a
//! watch, so whoever waits for a state of it cannot come too late. This room also knows the shell text that a job is
//! made of on the remote side ([`ExecPlan`], [`kill_script`]) and never meets `ssh`, which carries it there.

mod announcements;
mod archive;
mod awaits_stdin;
mod caller;
mod cursors;
mod drain;
mod exec_plan;
mod far_end;
mod fleet;
mod id;
mod job;
mod key_presses;
mod log;
mod machine_id;
mod matching;
mod outcome;
mod pacing;
mod pending;
mod prelude;
mod reading;
mod recorder;
mod shell;
mod signal;
mod signal_script;
mod spec;
mod tail;

pub use announcements::Announcements;
pub use archive::{Archive, Coverage, Place, Skimmed};
pub use awaits_stdin::{AwaitsStdin, awaits_stdin_script};
pub use caller::{Caller, Scope};
pub use cursors::{CursorName, Cursors, TooManyCursors};
pub use exec_plan::{ExecPlan, PlanError, shell_probes};
pub use far_end::{Controls, FarEnd, FarEndError, FarEvent};
pub use fleet::{
    Fleet, FleetCounts, FleetPlan, FleetSummary, MOST_NAMES, Member, MemberEnd, MemberGroup, Printed,
    RangeError, Rollout, StopAfter, fold, member_of, prefixed, unfold, words,
};
pub use id::{JobId, Nonce};
pub use job::{Chunk, Identity, Job, Piece, Positions, Storage};
pub use key_presses::key_bytes;
pub use log::{Log, Past, Phase, Status, wall_now};
pub use machine_id::MachineId;
pub use matching::{Matching, TooSlow};
pub use outcome::{Exit, LostWhy, Outcome};
pub use pending::{Batch, Keeper, LogEvent};
pub use signal_script::{KillReport, Left, ProcessGroup, Reach, kill_script};

pub use prelude::from_home;
pub use reading::Found;
pub use recorder::{Change, End, Recorded, Recorder};
pub use shell::LoginShell;
pub use signal::{Signal, UnknownSignal};
pub use spec::{Draft, JobSpec, Pace, SpecError, StdinPlan, Terminal, check_word};
pub use tail::{PARTIAL_SHOWN, ReturnedBecause, Tail, Wait, shown_end};

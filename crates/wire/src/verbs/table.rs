//! The verbs that tools, the JSON API and the client of a server have in common: a row each.

/// Passes the table of verbs to a macro, which gets
/// `name: Request => Reply, ROLE, REPEAT, "summary";` for each of them.
///
/// `ROLE` is a variant of [`Role`](sshjobs_core::jobs::Role): the lowest one that may call it; some arguments
/// need a higher one. `REPEAT` is a variant of [`Repeat`].
#[macro_export]
macro_rules! for_each_verb {
    ($rows:ident) => {
        $rows! {
            spawn: $crate::SpawnRequest => $crate::SpawnReply, Run, Never, "Start a job and return its id";
            run: $crate::RunRequest => $crate::RunReply, Run, Never, "Run a command and wait for its end";
            look: $crate::LookRequest => $crate::RunReply, Run, Safe, "Run a command that only looks";
            tail: $crate::TailRequest => $crate::TailReply, Read, Safe, "Read the lines after a cursor; wait for news";
            read: $crate::ReadRequest => $crate::ReadReply, Read, Safe, "Read a part of the output by position";
            search: $crate::SearchRequest => $crate::SearchReply, Read, Safe, "Find lines by pattern";
            write: $crate::WriteRequest => $crate::WriteReply, Run, Never, "Write to a job's stdin";
            signal: $crate::SignalRequest => $crate::SignalReply, Run, Never, "Signal a job's process tree";
            wait: $crate::WaitRequest => $crate::WaitReply, Read, Safe, "Wait for the end of jobs";
            jobs: $crate::JobsRequest => $crate::JobsReply, Read, Safe, "List jobs";
            forget: $crate::ForgetRequest => $crate::ForgetReply, Run, Never, "Delete a finished job, or only its output";
            recipe: $crate::RecipeRequest => $crate::RecipeReply, Run, Safe, "How a job was started, to start it again";
            fetch: $crate::FetchRequest => $crate::FetchReply, Run, Safe, "Copy the files of a job back, to the server";
            queue: $crate::QueueRequest => $crate::QueueReply, Read, Never, "List queues, or hold, release and move their jobs";
            hosts: $crate::HostsRequest => $crate::HostsReply, Read, Safe, "List hosts, or try one";
            get: $crate::GetRequest => $crate::GetReply, Run, Safe, "Read a file of a host, or list a directory";
            forward: $crate::ForwardRequest => $crate::ForwardReply, Run, Never, "Forward ports through hosts";
            put: $crate::PutRequest => $crate::PutReply, Run, Never, "Write a file of a host, or change parts of it";
        }
    };
}

/// Whether a call of a verb may be repeated after its connection broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// It changes nothing.
    Safe,
    /// It changes something.
    Never,
}

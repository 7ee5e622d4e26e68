use std::sync::Arc;

/// Why the store can't be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The state directory can't be created, read or written.
    #[error("{path} can't be used: {source}")]
    Io {
        /// The path.
        path: String,
        /// The cause.
        source: Arc<std::io::Error>,
    },
    /// A newer sshjobs has written it.
    #[error("{path} was written by a newer sshjobs (schema {found}; this one knows {known})")]
    Newer {
        /// The path.
        path: String,
        /// Its schema.
        found: i64,
        /// The newest schema that this version knows.
        known: i64,
    },
    /// The records can't be read or written.
    #[error("the records can't be used: {0}")]
    Records(String),
    /// The file of records is damaged.
    #[error("jobs.db is damaged: {0}")]
    Damaged(String),
    /// The record of a job can't be read.
    #[error("the record of the job {job} can't be read: {why}")]
    Unreadable {
        /// The job's id.
        job: String,
        /// What is wrong with the record.
        why: String,
    },
    /// The state directory was removed or replaced while in use: no process would find data written
    /// now.
    #[error("{0} was removed or replaced while this process used it; restart the process")]
    Replaced(String),
    /// Processes use the state directory, and must end first.
    #[error("{path} is in use by {processes}")]
    InUse {
        /// The path.
        path: String,
        /// The processes, for people.
        processes: String,
    },
    /// The state directory is not empty, so nothing is restored into it.
    #[error("{0} is not empty")]
    NotEmpty(String),
    /// The archive was cut, or is not a copy of a state directory.
    #[error("the archive is no whole copy of a state directory")]
    NoCopy,
    /// The archive can't be read or written, or what is in it can't be.
    #[error("the copy has failed: {0}")]
    Copy(String),
    /// NATS can't be used.
    #[error("NATS can't be used: {0}")]
    Nats(String),
    /// No NATS server can be reached.
    #[error("no NATS server can be reached: {0}")]
    NatsAway(String),
    /// No replica has ever used this prefix in NATS.
    #[error("no replica has ever used the prefix {0:?}")]
    UnusedPrefix(String),
    /// Another replica holds the job's host.
    #[error("{holder} holds the host {host}")]
    HeldElsewhere {
        /// The host.
        host: String,
        /// Name of the replica.
        holder: String,
    },
}

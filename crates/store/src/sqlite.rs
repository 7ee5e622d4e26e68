//! Records, cursors and keys in SQLite. Where another process must not interfere between a read
//! and a write, a method is one transaction.

use std::path::Path;
use std::time::Duration;

use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension, Row, ToSql, TransactionBehavior, params,
};

use super::{Filter, Record, StoreError};
use sshjobs_job::{Caller, CursorMove, CursorName, JobId, Moved, may_move};
use sshjobs_output::{LineNo, Timestamp};

/// Records in a SQLite database (WAL), shared by several processes.
pub(super) struct RecordTable {
    connection: Connection,
}

/// The version of the tables, in `user_version`.
pub(super) const SCHEMA: i64 = 3;
/// Time limit for another process to finish its write.
const BUSY: Duration = Duration::from_secs(5);

/// Values used in queries have a column; the rest is in the document.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS jobs (
        id TEXT PRIMARY KEY,
        caller TEXT NOT NULL,
        host TEXT NOT NULL,
        label TEXT,
        state TEXT NOT NULL,
        owner TEXT NOT NULL,
        key TEXT,
        started_at INTEGER NOT NULL,
        ended_at INTEGER,
        bytes INTEGER NOT NULL,
        document TEXT NOT NULL,
        fleet TEXT
    ) WITHOUT ROWID;
    CREATE UNIQUE INDEX IF NOT EXISTS by_key ON jobs (caller, key) WHERE key IS NOT NULL;
    CREATE INDEX IF NOT EXISTS by_start ON jobs (caller, started_at);
    CREATE INDEX IF NOT EXISTS by_host ON jobs (caller, host, started_at);
    CREATE INDEX IF NOT EXISTS by_label ON jobs (caller, label, started_at) WHERE label IS NOT NULL;
    CREATE INDEX IF NOT EXISTS by_state ON jobs (caller, state, started_at);
    CREATE INDEX IF NOT EXISTS unfinished ON jobs (owner) WHERE ended_at IS NULL;
    CREATE INDEX IF NOT EXISTS by_end ON jobs (ended_at, bytes) WHERE ended_at IS NOT NULL;
    CREATE TABLE IF NOT EXISTS cursors (
        job TEXT NOT NULL,
        caller TEXT NOT NULL,
        reader TEXT NOT NULL,
        line INTEGER NOT NULL,
        PRIMARY KEY (job, caller, reader)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
";

/// From schema 1, which had no fleets.
const ADD_FLEETS: &str = "ALTER TABLE jobs ADD COLUMN fleet TEXT;";

impl RecordTable {
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY)?;
        // Before WAL, which writes the first page: later it would have no effect.
        connection.pragma_update(None, "auto_vacuum", "full")?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        // With WAL, a power failure may undo the last commits but does not damage the database.
        connection.pragma_update(None, "synchronous", "normal")?;
        let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if found > SCHEMA {
            return Err(StoreError::Newer {
                path: path.display().to_string(),
                found,
                known: SCHEMA,
            });
        }
        let mut records = Self { connection };
        if found < SCHEMA {
            records.migrate()?;
        }
        Ok(records)
    }

    /// A second connection to records that are [open](Self::open). It only reads, so it never waits
    /// for another process's write.
    pub(super) fn open_reader(path: &Path) -> Result<Self, StoreError> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "query_only", true)?;
        Ok(Self { connection })
    }

    /// Updates the tables to the current schema. Another process may be faster.
    fn migrate(&mut self) -> Result<(), StoreError> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Read again under the write lock: another process may have migrated meanwhile.
        let found: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if found == 1 {
            transaction.execute_batch(ADD_FLEETS)?;
        }
        // Creates only missing tables, so it also adds the cursors, which schema 2 lacks.
        transaction.execute_batch(TABLES)?;
        transaction.pragma_update(None, "user_version", SCHEMA)?;
        Ok(transaction.commit()?)
    }

    /// A random value shared by all processes, created by the first.
    pub(super) fn shared_secret(&self, fresh: [u8; 32]) -> Result<[u8; 32], StoreError> {
        let select = "SELECT value FROM settings WHERE name = 'secret'";
        let known: Option<Vec<u8>> =
            self.connection.query_row(select, [], |row| row.get(0)).optional()?;
        let value = match known {
            Some(value) => value,
            // Only if it is missing: a write waits for the writes of other processes.
            None => {
                let insert = "INSERT OR IGNORE INTO settings (name, value) VALUES ('secret', ?)";
                self.connection.execute(insert, [fresh.as_slice()])?;
                self.connection.query_row(select, [], |row| row.get(0))?
            }
        };
        value
            .try_into()
            .map_err(|_| StoreError::Records("the shared secret is damaged".to_owned()))
    }

    /// What is wrong with the database. `None` if it is whole.
    ///
    /// # Errors
    /// If that can't be found out: a disk that fails, or a lock that is held for long.
    pub(super) fn damage(&self) -> Result<Option<String>, StoreError> {
        let check = "PRAGMA quick_check(1)";
        let found = self.connection.query_row(check, [], |row| row.get::<_, String>(0));
        match found.map_err(StoreError::from) {
            Ok(found) if found == "ok" => Ok(None),
            Ok(found) | Err(StoreError::Damaged(found)) => Ok(Some(found)),
            Err(error) => Err(error),
        }
    }

    /// Opens a database for reading, whatever state it is in. It is not changed.
    pub(super) fn open_unchecked(path: &Path) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY)?;
        Ok(Self { connection })
    }

    /// The shared secret, if it can be read.
    pub(super) fn known_secret(&self) -> Option<[u8; 32]> {
        let select = "SELECT value FROM settings WHERE name = 'secret'";
        let value: Vec<u8> = self.connection.query_row(select, [], |row| row.get(0)).ok()?;
        value.try_into().ok()
    }

    /// All records that can be read, up to the first damaged page, and the ids of those that can't be understood.
    pub(super) fn salvage(&self) -> (Vec<Record>, Vec<String>) {
        let (mut whole, mut unreadable) = (Vec::new(), Vec::new());
        let select = "SELECT id, document, owner FROM jobs";
        let Ok(mut select) = self.connection.prepare(select) else {
            return (whole, unreadable);
        };
        let Ok(rows) = select.query_map([], row) else { return (whole, unreadable) };
        for row in rows.map_while(Result::ok) {
            let id = row.id.clone();
            match read(row) {
                Ok(record) => whole.push(record),
                Err(_) => unreadable.push(id),
            }
        }
        (whole, unreadable)
    }

    /// Adds a record as it is, in place of one that can't be understood. Its idempotency key is dropped if another job has it.
    pub(super) fn add(&mut self, record: &Record) -> Result<(), StoreError> {
        self.connection.execute("DELETE FROM jobs WHERE id = ?", [record.id.as_str()])?;
        if self.admit(record)?.is_none() {
            return Ok(());
        }
        let without_key = Record {
            key: None,
            ..record.clone()
        };
        self.admit(&without_key).map(drop)
    }

    /// Adds the cursors that can be read in another database.
    pub(super) fn add_cursors_of(&mut self, other: &Self) -> Result<(), StoreError> {
        let Ok(mut select) =
            other.connection.prepare("SELECT job, caller, reader, line FROM cursors")
        else {
            return Ok(());
        };
        let row = |row: &Row<'_>| -> rusqlite::Result<(String, String, String, i64)> {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        };
        let Ok(rows) = select.query_map([], row) else { return Ok(()) };
        let put = "INSERT OR REPLACE INTO cursors (job, caller, reader, line) VALUES (?, ?, ?, ?)";
        for (job, caller, reader, line) in rows.map_while(Result::ok) {
            self.connection
                .prepare_cached(put)?
                .execute(params![job, caller, reader, line])?;
        }
        Ok(())
    }

    /// Writes a consistent copy of the database to a new file, while others use it.
    pub(super) fn copy_to(&self, file: &Path) -> Result<(), StoreError> {
        let name = file.to_str().ok_or_else(|| {
            StoreError::Records(format!("the name of {} is not UTF-8", file.display()))
        })?;
        self.connection.execute("VACUUM INTO ?", [name])?;
        Ok(())
    }

    /// Tries whether records can be read and changed.
    pub(super) fn probe(&mut self) -> Result<(), StoreError> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.query_row("SELECT count(*) FROM jobs WHERE id = ''", [], |_| Ok(()))?;
        Ok(transaction.rollback()?)
    }

    pub(super) fn admit(&mut self, record: &Record) -> Result<Option<Record>, StoreError> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Under the write lock, so that of two jobs with one key only one is admitted.
        if let Some(key) = &record.key {
            let select = "SELECT id, document, owner FROM jobs WHERE caller = ? AND key = ?";
            let found = transaction
                .query_row(select, params![record.caller.as_str(), key], row)
                .optional()?;
            if let Some(found) = found {
                return read(found).map(Some);
            }
        }
        let insert = "INSERT INTO jobs (id, caller, host, label, state, owner, key, started_at, ended_at, bytes, document, fleet)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
        transaction.prepare_cached(insert)?.execute(params![
            record.id.as_str(),
            record.caller.as_str(),
            record.host,
            record.label,
            record.state(),
            record.owner,
            record.key,
            number(record.started_at),
            record.ended_at.map(number),
            number(record.stored_bytes),
            write(record)?,
            record.member_of.as_ref().map(JobId::as_str),
        ])?;
        transaction.commit()?;
        Ok(None)
    }

    /// Updates records that still belong to their owner.
    pub(super) fn put(&mut self, records: &[Record]) -> Result<(), StoreError> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for record in records {
            let update = "UPDATE jobs SET state = ?, key = ?, ended_at = ?, bytes = ?, \
                document = ? WHERE id = ? AND owner = ?";
            transaction.prepare_cached(update)?.execute(params![
                record.state(),
                record.key,
                record.ended_at.map(number),
                number(record.stored_bytes),
                write(record)?,
                record.id.as_str(),
                record.owner,
            ])?;
        }
        Ok(transaction.commit()?)
    }

    pub(super) fn get(&self, id: &JobId) -> Result<Option<Record>, StoreError> {
        let mut select = self
            .connection
            .prepare_cached("SELECT id, document, owner FROM jobs WHERE id = ?")?;
        select.query_row([id.as_str()], row).optional()?.map(read).transpose()
    }

    pub(super) fn list(&self, filter: &Filter) -> Result<(Vec<Record>, usize), StoreError> {
        let columns: [(&str, Option<&str>); 4] = [
            (
                "caller",
                filter.caller.as_ref().map(sshjobs_job::Caller::as_str),
            ),
            ("host", filter.host.as_deref()),
            ("label", filter.label.as_deref()),
            ("state", filter.state),
        ];
        let mut condition = if filter.members { "1" } else { "fleet IS NULL" }.to_owned();
        let mut values: Vec<&dyn ToSql> = Vec::new();
        for (column, value) in &columns {
            if let Some(value) = value {
                // Only the names above enter the text. The callers' values are bound.
                condition = format!("{condition} AND {column} = ?");
                values.push(value);
            }
        }
        let count = format!("SELECT COUNT(*) FROM jobs WHERE {condition}");
        // Not one transaction: the total may miss a job that is added before the next query.
        let total: i64 = self
            .connection
            .prepare_cached(&count)?
            .query_row(values.as_slice(), |row| row.get(0))?;
        let select = format!(
            "SELECT id, document, owner FROM jobs WHERE {condition} ORDER BY started_at \
             DESC, id LIMIT {}",
            filter.limit
        );
        let mut select = self.connection.prepare_cached(&select)?;
        let rows: Vec<_> = select.query_map(values.as_slice(), row)?.collect::<Result<_, _>>()?;
        Ok((readable(rows), usize::try_from(total).unwrap_or_default()))
    }

    pub(super) fn remove(&self, id: &JobId) -> Result<(), StoreError> {
        self.connection
            .prepare_cached("DELETE FROM jobs WHERE id = ?")?
            .execute([id.as_str()])?;
        self.connection
            .prepare_cached("DELETE FROM cursors WHERE job = ?")?
            .execute([id.as_str()])?;
        Ok(())
    }

    /// See [`Store::cursor`](super::Store::cursor).
    pub(super) fn cursor(&self, job: &JobId, name: &CursorName) -> Result<LineNo, StoreError> {
        Ok(cursor(&self.connection, job, name)?.unwrap_or(LineNo::START))
    }

    /// The cursors of a job's named readers.
    pub(super) fn cursors(&self, job: &JobId) -> Result<Vec<(CursorName, LineNo)>, StoreError> {
        let select = "SELECT caller, reader, line FROM cursors WHERE job = ?";
        let mut select = self.connection.prepare_cached(select)?;
        let cursors = select.query_map([job.as_str()], |row| {
            let caller: String = row.get(0)?;
            let line: i64 = row.get(2)?;
            let name = CursorName {
                caller: Caller::new(&caller),
                reader: row.get(1)?,
            };
            Ok((name, LineNo::new(u64::try_from(line).unwrap_or(0))))
        })?;
        Ok(cursors.collect::<Result<_, _>>()?)
    }

    /// See [`Store::move_cursor`](super::Store::move_cursor).
    pub(super) fn move_cursor(
        &mut self,
        job: &JobId,
        name: &CursorName,
        step: CursorMove,
    ) -> Result<Moved, StoreError> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let known = cursor(&transaction, job, name)?;
        let count = "SELECT count(*) FROM cursors WHERE job = ?";
        let count: i64 =
            transaction.prepare_cached(count)?.query_row([job.as_str()], |row| row.get(0))?;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let moved = may_move(known, step, count);
        if moved == Moved::Done && known != Some(step.to) {
            let put =
                "INSERT OR REPLACE INTO cursors (job, caller, reader, line) VALUES (?, ?, ?, ?)";
            let values = params![
                job.as_str(),
                name.caller.as_str(),
                name.reader,
                number(step.to.value())
            ];
            transaction.prepare_cached(put)?.execute(values)?;
        }
        transaction.commit()?;
        Ok(moved)
    }

    /// Owners of jobs that have not ended.
    pub(super) fn owners(&self) -> Result<Vec<String>, StoreError> {
        let mut select = self
            .connection
            .prepare_cached("SELECT DISTINCT owner FROM jobs WHERE ended_at IS NULL")?;
        Ok(select.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
    }

    /// The jobs of an owner that have not ended.
    pub(super) fn unfinished(&self, owner: &str) -> Result<Vec<Record>, StoreError> {
        let select = "SELECT id, document, owner FROM jobs WHERE owner = ? AND ended_at IS NULL";
        let mut select = self.connection.prepare_cached(select)?;
        let rows: Vec<_> = select.query_map([owner], row)?.collect::<Result<_, _>>()?;
        Ok(readable(rows))
    }

    /// Gives a job to another owner, if it still belongs to the first.
    pub(super) fn claim(&self, id: &JobId, from: &str, to: &str) -> Result<bool, StoreError> {
        // Compares and changes in one statement, so that only one process can claim the job.
        let update = "UPDATE jobs SET owner = ? WHERE id = ? AND owner = ? AND ended_at IS NULL";
        Ok(self
            .connection
            .prepare_cached(update)?
            .execute(params![to, id.as_str(), from])?
            == 1)
    }

    /// Finished jobs that ended before a time.
    pub(super) fn ended_before(&self, time: Timestamp) -> Result<Vec<JobId>, StoreError> {
        let mut select =
            self.connection.prepare_cached("SELECT id FROM jobs WHERE ended_at < ?")?;
        Ok(select.query_map([number(time)], job_id)?.collect::<Result<_, _>>()?)
    }

    /// Finished jobs, oldest first, whose output must be deleted so that the rest uses at most
    /// `most` bytes.
    pub(super) fn in_excess_of(&self, most: u64) -> Result<Vec<JobId>, StoreError> {
        let total: i64 =
            self.connection
                .query_row("SELECT COALESCE(SUM(bytes), 0) FROM jobs", [], |row| {
                    row.get(0)
                })?;
        // Output of running jobs counts, but only that of finished jobs is deleted.
        let mut excess = total.saturating_sub(number(most));
        if excess <= 0 {
            return Ok(Vec::new());
        }
        let select =
            "SELECT id, bytes FROM jobs WHERE ended_at IS NOT NULL AND bytes > 0 ORDER BY ended_at";
        let mut select = self.connection.prepare_cached(select)?;
        let mut rows = select.query([])?;
        let mut jobs = Vec::new();
        while excess > 0
            && let Some(row) = rows.next()?
        {
            excess -= row.get::<_, i64>(1)?;
            jobs.push(job_id(row)?);
        }
        Ok(jobs)
    }

    /// Notes that a finished job's output was deleted.
    pub(super) fn note_evicted(&self, id: &JobId) -> Result<(), StoreError> {
        if let Some(mut record) = self.get(id)? {
            (record.stored_bytes, record.dropped_lines) = (0, record.total_lines);
            let update = "UPDATE jobs SET bytes = 0, document = ? WHERE id = ?";
            self.connection
                .prepare_cached(update)?
                .execute(params![write(&record)?, id.as_str()])?;
        }
        Ok(())
    }
}

/// A record as the database has it.
struct RecordRow {
    id: String,
    document: String,
    owner: String,
}

fn row(columns: &Row<'_>) -> rusqlite::Result<RecordRow> {
    Ok(RecordRow {
        id: columns.get(0)?,
        document: columns.get(1)?,
        owner: columns.get(2)?,
    })
}

fn job_id(row: &Row<'_>) -> rusqlite::Result<JobId> {
    Ok(JobId::from(row.get::<_, String>(0)?.as_str()))
}

/// The `owner` column wins over the document: claims update only the column.
fn read(row: RecordRow) -> Result<Record, StoreError> {
    let record: Record =
        serde_json::from_str(&row.document).map_err(|error| StoreError::Unreadable {
            job: row.id,
            why: error.to_string(),
        })?;
    Ok(Record {
        owner: row.owner,
        ..record
    })
}

/// The records that can be read. A damaged one does not hide the others.
fn readable(rows: Vec<RecordRow>) -> Vec<Record> {
    let records = rows.into_iter().filter_map(|row| {
        read(row)
            .inspect_err(|error| tracing::error!(%error, "jobs.db is damaged"))
            .ok()
    });
    records.collect()
}

fn write(record: &Record) -> Result<String, StoreError> {
    serde_json::to_string(record).map_err(|error| StoreError::Records(error.to_string()))
}

/// The line of a named reader's cursor. `None` if the reader is new.
fn cursor(
    connection: &Connection,
    job: &JobId,
    name: &CursorName,
) -> rusqlite::Result<Option<LineNo>> {
    let select = "SELECT line FROM cursors WHERE job = ? AND caller = ? AND reader = ?";
    let values = params![job.as_str(), name.caller.as_str(), name.reader];
    let line: Option<i64> = connection
        .prepare_cached(select)?
        .query_row(values, |row| row.get(0))
        .optional()?;
    Ok(line.map(|line| LineNo::new(u64::try_from(line).unwrap_or(0))))
}

/// SQLite's integers are signed.
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Damaged(error.to_string())
            }
            Some(_) | None => Self::Records(error.to_string()),
        }
    }
}

//! One shell per connection that runs all short scripts there.
//!
//! A login shell may need hundreds of milliseconds to start (`.bashrc` with pyenv, nvm or conda),
//! so signals, process inspection and calls of the spool share one. The first script starts it. It
//! ends with the connection, or earlier to [free a session](ControlShell::give_way) on servers with
//! a low MaxSessions.
//!
//! # Theory of operation
//! Callers put orders into a queue, and one task owns the channel. It starts the shell, waits for
//! its greeting, writes a line for each order and returns each script's output to its caller. If
//! the caller is dropped, a script that was written still runs, and one that was not is dropped.
//! When the channel ends, orders that were written get an error, and others are given to another shell.
//! The task ends when the queue is dropped. It is never aborted, because an aborted task would
//! leave its channel open on the server.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use sshjobs_base::lock::lock;
use sshjobs_job::{
    ControlLine, Greeted, Greeting, MachineId, Nonce, control_request, control_script,
};
use sshjobs_ssh::{ChannelError, ChannelEvent, ChannelReader, ChannelWriter, Connection};

/// Time limit for the shell to greet, which includes its startup files.
const GREETING_TIME: Duration = Duration::from_secs(10);
/// Time limit for an order to be written.
const WRITE_TIME: Duration = Duration::from_secs(10);
/// Time limit for an idle shell to end.
const END_TIME: Duration = Duration::from_secs(2);
/// Maximum orders that wait to be written.
const QUEUE: usize = 64;
/// Maximum bytes kept of a script's output.
const ANSWER_LIMIT: usize = 64 << 10;

/// A shell for short scripts; see the module.
#[derive(Default)]
pub(super) struct ControlShell {
    session: Mutex<Option<ShellSession>>,
    /// Number of orders without an answer.
    open_orders: AtomicUsize,
    found: Arc<HostFacts>,
}

/// Facts about the host that a shell has revealed.
#[derive(Default)]
struct HostFacts {
    /// The host does not run commands in a shell, so no control shell is tried again.
    has_no_shell: AtomicBool,
    machine: OnceLock<Option<MachineId>>,
}

/// A shell that runs or is being started.
struct ShellSession {
    orders: mpsc::Sender<ScriptOrder>,
    task: JoinSet<()>,
}

impl Drop for ShellSession {
    fn drop(&mut self) {
        // A dropped `JoinSet` would abort the task. Detached, the task ends with its queue.
        self.task.detach_all();
    }
}

/// A script to run.
struct ScriptOrder {
    script: String,
    input: SecretString,
    answer: oneshot::Sender<ScriptReply>,
}

/// A script's output. `None` if the host has no shell to run it.
type Answer = Result<Option<String>, ChannelError>;

/// Result of an order.
enum ScriptReply {
    Answer(Answer),
    /// The shell ended before the order was written, so it can be written to another shell.
    NotWritten,
}

impl ControlShell {
    /// Runs `script` in `/bin/sh` with `input` as its stdin, and returns its stdout. Lines beyond 64 KiB
    /// are dropped. `None` if the host does not run commands in a shell.
    ///
    /// Scripts run in parallel. After `limit` a script keeps running, and its output is discarded.
    pub(super) async fn run(
        &self,
        connection: &Arc<Connection>,
        script: Script,
        limit: Duration,
    ) -> Answer {
        // Counted before `orders` locks the session, so that `give_way` never ends a shell in use.
        let _open = OpenOrder::new(&self.open_orders);
        let running = async {
            // A shell that was killed is replaced once. A script that was written is not repeated:
            // it may have run.
            if let ScriptReply::Answer(answer) = self.order(connection, script.clone()).await {
                return answer;
            }
            match self.order(connection, script).await {
                ScriptReply::Answer(answer) => answer,
                ScriptReply::NotWritten => Err(ChannelError::ConnectionLost),
            }
        };
        timeout(limit, running).await.unwrap_or(Err(ChannelError::TimedOut(limit)))
    }

    async fn order(
        &self,
        connection: &Arc<Connection>,
        Script { text, input }: Script,
    ) -> ScriptReply {
        if self.found.has_no_shell.load(Relaxed) {
            return ScriptReply::Answer(Ok(None));
        }
        let (answer, answered) = oneshot::channel();
        let orders = self.orders(connection);
        let order = ScriptOrder {
            script: text,
            input,
            answer,
        };
        if orders.send(order).await.is_err() {
            return ScriptReply::NotWritten;
        }
        answered.await.unwrap_or(ScriptReply::Answer(Err(ChannelError::ConnectionLost)))
    }

    /// The queue of the shell. Starts a shell if none runs.
    fn orders(&self, connection: &Arc<Connection>) -> mpsc::Sender<ScriptOrder> {
        let mut session = lock(&self.session);
        if let Some(session) = &*session
            // A closed queue belongs to a shell that has ended.
            && !session.orders.is_closed()
        {
            return session.orders.clone();
        }
        let (orders, queue) = mpsc::channel(QUEUE);
        let mut task = JoinSet::new();
        task.spawn(serve(
            Arc::clone(connection),
            queue,
            Arc::clone(&self.found),
        ));
        *session = Some(ShellSession {
            orders: orders.clone(),
            task,
        });
        orders
    }

    /// The machine at the other end, if it reported one.
    pub(super) fn machine(&self) -> Option<MachineId> {
        self.found.machine.get().cloned().flatten()
    }

    /// Whether a shell has greeted there, with or without its machine.
    pub(super) fn has_greeted(&self) -> bool {
        self.found.machine.get().is_some()
    }

    /// Notes the machine that another shell of this connection reported.
    pub(super) fn note_machine(&self, machine: Option<MachineId>) {
        self.found.machine.set(machine).ok();
    }

    /// Ends an idle shell to free its session on the server. Returns whether it has ended.
    pub(super) async fn give_way(&self) -> bool {
        let idle = {
            let mut session = lock(&self.session);
            // Under the lock: an order that is counted later finds no session, and starts one.
            if self.open_orders.load(Relaxed) > 0 {
                None
            } else {
                session.take()
            }
        };
        let Some(mut session) = idle else { return false };
        // Replacing the only sender closes the task's queue, which ends the task.
        session.orders = mpsc::channel(1).0;
        timeout(END_TIME, session.task.join_next()).await.is_ok()
    }
}

/// A script for the control shell.
#[derive(Clone)]
pub struct Script {
    /// The text, for a POSIX shell.
    pub text: String,
    /// Its stdin. It never appears in a command line.
    pub input: SecretString,
}

impl Script {
    /// A script whose stdin is empty.
    pub fn without_input(text: String) -> Self {
        Self {
            text,
            input: String::new().into(),
        }
    }
}

/// Counts an order as open until it is dropped.
struct OpenOrder<'a>(&'a AtomicUsize);

impl<'a> OpenOrder<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Relaxed);
        Self(count)
    }
}

impl Drop for OpenOrder<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Starts a shell and serves orders until the queue or the channel ends.
async fn serve(
    connection: Arc<Connection>,
    mut queue: mpsc::Receiver<ScriptOrder>,
    found: Arc<HostFacts>,
) {
    let failure = match start(&connection, &found).await {
        Ok(Some(shell)) => {
            shell.serve(&mut queue).await;
            None
        }
        // Another shell has greeted there, so this one was killed or could not be forked.
        Ok(None) if found.machine.get().is_some() => Some(Err(ChannelError::ConnectionLost)),
        Ok(None) => {
            found.has_no_shell.store(true, Relaxed);
            Some(Ok(None))
        }
        Err(error) => Some(Err(error)),
    };
    // Close first, so that no order arrives after this loop.
    queue.close();
    while let Some(order) = queue.recv().await {
        // The caller may have been cancelled.
        order
            .answer
            .send(failure.clone().map_or(ScriptReply::NotWritten, ScriptReply::Answer))
            .ok();
    }
}

/// A shell that has greeted.
struct RunningShell {
    nonce: Nonce,
    reader: ChannelReader,
    writer: ChannelWriter,
    /// Output after the greeting, up to an unfinished line.
    unread: Vec<u8>,
    open: HashMap<u64, OpenScript>,
    last_id: u64,
}

/// A script that is running.
struct OpenScript {
    printed: String,
    /// The output has reached the limit. Later lines are dropped, too, even short ones.
    is_full: bool,
    answer: oneshot::Sender<ScriptReply>,
}

/// Starts a shell. `None` if the host does not run commands in a shell.
async fn start(
    connection: &Connection,
    found: &HostFacts,
) -> Result<Option<RunningShell>, ChannelError> {
    let nonce = Nonce::new();
    let (mut reader, writer) = connection.open().await?.exec(&control_script(&nonce)).await?;
    let greeted = timeout(GREETING_TIME, read_greeting(&mut reader, &nonce)).await;
    let Ok(Ok(Greeted::By(machine))) = greeted else {
        // A lost connection needs no closing.
        writer.close().await.ok();
        return match greeted {
            Ok(Err(error)) => Err(error),
            Ok(Ok(_)) => Ok(None),
            Err(_) => Err(ChannelError::NoGreeting(GREETING_TIME)),
        };
    };
    // A second greeting reports the same machine, so a `set` that fails is harmless.
    found.machine.set(machine).ok();
    let unread = Vec::new();
    let open = HashMap::new();
    Ok(Some(RunningShell {
        nonce,
        reader,
        writer,
        unread,
        open,
        last_id: 0,
    }))
}

/// Reads to the end of the greeting. The shell prints nothing after it until it gets a request.
async fn read_greeting(reader: &mut ChannelReader, nonce: &Nonce) -> Result<Greeted, ChannelError> {
    let mut greeting = Greeting::new(nonce);
    loop {
        match reader.next().await {
            Some(ChannelEvent::Data(bytes)) => match greeting.read(&bytes) {
                Greeted::NotYet => {}
                greeted @ (Greeted::By(_) | Greeted::Never) => return Ok(greeted),
            },
            Some(ChannelEvent::Close | ChannelEvent::Failure) => return Ok(Greeted::Never),
            None => return Err(ChannelError::ConnectionLost),
            Some(
                ChannelEvent::ExtendedData(_)
                | ChannelEvent::Eof
                | ChannelEvent::ExitStatus(_)
                | ChannelEvent::ExitSignal(_)
                | ChannelEvent::Success,
            ) => {}
        }
    }
}

impl RunningShell {
    async fn serve(mut self, queue: &mut mpsc::Receiver<ScriptOrder>) {
        loop {
            let is_alive = tokio::select! {
                // Both futures are cancel safe, so the branch that loses drops nothing.
                order = queue.recv() => match order {
                    Some(order) => self.write(order).await,
                    None => false,
                },
                event = self.reader.next() => self.take(event),
            };
            if !is_alive {
                break;
            }
        }
        self.writer.end(&mut self.reader).await;
    }

    /// Writes an order. Returns false if the shell can't be reached.
    async fn write(
        &mut self,
        ScriptOrder {
            script,
            input,
            answer,
        }: ScriptOrder,
    ) -> bool {
        // The caller has given up.
        if answer.is_closed() {
            return true;
        }
        self.last_id += 1;
        self.open.insert(
            self.last_id,
            OpenScript {
                printed: String::new(),
                is_full: false,
                answer,
            },
        );
        // Drops orders whose callers have given up.
        self.open.retain(|_, script| !script.answer.is_closed());

        let line: SecretString =
            control_request(self.last_id, &script, input.expose_secret()).into();
        let writing = async {
            let mut left = line.expose_secret().as_bytes();
            while !left.is_empty() {
                let written = self.writer.write(left).await?;
                left = &left[written..];
            }
            Ok::<_, ChannelError>(())
        };
        // A line that was written in part garbles the next one, so a failure ends the shell.
        matches!(timeout(WRITE_TIME, writing).await, Ok(Ok(())))
    }

    /// Handles output of the shell. Returns false if it has ended.
    fn take(&mut self, event: Option<ChannelEvent>) -> bool {
        match event {
            Some(ChannelEvent::Data(bytes)) => self.unread.extend_from_slice(&bytes),
            None | Some(ChannelEvent::Close | ChannelEvent::Failure) => return false,
            Some(
                ChannelEvent::ExtendedData(_)
                | ChannelEvent::Eof
                | ChannelEvent::ExitStatus(_)
                | ChannelEvent::ExitSignal(_)
                | ChannelEvent::Success,
            ) => {}
        }
        while let Some(end) = memchr::memchr(b'\n', &self.unread) {
            let line: Vec<u8> = self.unread.drain(..=end).collect();
            if let Some(line) =
                // Trimming also drops empty lines, such as the one that the last `echo` prints.
                ControlLine::parse(String::from_utf8_lossy(&line).trim_end(), &self.nonce)
            {
                self.take_line(line);
            }
        }
        // A line this long does not come from the script: give up on the shell.
        self.unread.len() <= ANSWER_LIMIT
    }

    fn take_line(&mut self, line: ControlLine) {
        match line {
            ControlLine::Printed { id, text } => {
                if let Some(script) = self.open.get_mut(&id) {
                    script.is_full |= script.printed.len() + text.len() >= ANSWER_LIMIT;
                    if !script.is_full {
                        script.printed += &text;
                        script.printed.push('\n');
                    }
                }
            }
            ControlLine::Ended { id } => {
                if let Some(script) = self.open.remove(&id) {
                    // The caller may have been cancelled.
                    script.answer.send(ScriptReply::Answer(Ok(Some(script.printed)))).ok();
                }
            }
        }
    }
}

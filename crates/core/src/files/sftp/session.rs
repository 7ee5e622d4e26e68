//! An SFTP session on a channel.
//!
//! # Theory of operation
//! Any number of callers send requests at the same time. Each registers a waiter under a new id and
//! puts its packet into a bounded queue. One task owns the channel: one half of it sends the queue,
//! the other reads replies and hands each to the waiter with its id, in any order. Reading never
//! waits for a caller, because an unread channel would block its connection.
//!
//! A caller that is dropped leaves its waiter, so that its reply is recognized; a handle that
//! arrives for it is closed. The task ends when the channel ends, and then every waiter gets the
//! reason; or when the session is dropped, and then it closes the channel.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::packet::PacketReader;
use super::request::{OutgoingPacket, hello};
use super::{
    Attributes, DirectoryEntry, PacketAssembler, SftpError, SftpReply, SftpRequest, SftpStatus,
    SftpVersion,
};
use sshjobs_base::lock::lock;
use sshjobs_ssh::{ChannelError, ChannelEvent, ChannelReader, ChannelWriter};

/// An SFTP session. Dropping it closes its channel.
pub struct SftpSession {
    shared: Arc<SessionState>,
    queue: mpsc::Sender<OutgoingPacket>,
    version: SftpVersion,
    limits: PacketLimits,
    /// Longest time without any data while a reply is due.
    silence: Duration,
    task: JoinSet<()>,
}

/// Maximum bytes that one request may read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketLimits {
    pub(crate) read: u32,
    pub(crate) write: u32,
}

/// State shared by callers and the task.
struct SessionState {
    waiting: Mutex<WaitingReplies>,
    /// When data was last received or sent.
    active: Mutex<Instant>,
}

#[derive(Default)]
struct WaitingReplies {
    next_id: u32,
    waiters: HashMap<u32, oneshot::Sender<Result<SftpReply, SftpError>>>,
    /// Why the session has ended.
    ended: Option<SftpError>,
}

/// Maximum length of a handle (draft, section 7.2: 256 bytes).
const MOST_HANDLE: usize = 256;
/// Requests that wait to be sent. With the packets of a transfer in flight this bounds memory.
const QUEUE: usize = 64;
/// Bytes of a request that every server accepts.
const SAFE_LENGTH: u32 = 32 << 10;
/// Bytes of a request at most: a packet of 256 KiB with room for its header.
const MOST_LENGTH: u32 = (256 << 10) - 1024;
/// Maximum bytes kept of the server's stderr.
const MOST_STDERR: usize = 512;

impl SftpSession {
    /// Begins a session with an SFTP server that was started on a channel. A request fails if no data
    /// is received or sent for `silence`.
    ///
    /// # Errors
    /// [`SftpError::NoSubsystem`], or why the session can't be used. The channel is closed then.
    pub async fn start(
        mut reader: ChannelReader,
        writer: ChannelWriter,
        silence: Duration,
    ) -> Result<Self, SftpError> {
        let mut frames = PacketAssembler::default();
        let mut stderr = Vec::new();
        let greeting = greet(&mut reader, &writer, &mut frames, &mut stderr);
        let greeted = timeout(silence, greeting).await;
        let version = match greeted.unwrap_or(Err(SftpError::Silent(silence))) {
            Ok(version) => version,
            Err(error) => {
                // A lost connection needs no closing.
                writer.close().await.ok();
                return Err(error);
            }
        };

        let shared = Arc::new(SessionState {
            waiting: Mutex::default(),
            active: Mutex::new(Instant::now()),
        });
        let (queue, packets) = mpsc::channel(QUEUE);
        let moving = PacketsInFlight {
            shared: Arc::clone(&shared),
            reader,
            writer,
            frames,
            stderr,
            // Weak, so that the queue ends with the session.
            queue: queue.downgrade(),
        };
        let mut task = JoinSet::new();
        task.spawn(moving.run(packets));
        let mut session = Self {
            shared,
            queue,
            version,
            limits: PacketLimits {
                read: SAFE_LENGTH,
                write: SAFE_LENGTH,
            },
            silence,
            task,
        };
        session.ask_limits().await?;
        Ok(session)
    }

    /// Asks for the server's limits, as `sftp` does.
    async fn ask_limits(&mut self) -> Result<(), SftpError> {
        if !self.has("limits@openssh.com") {
            return Ok(());
        }
        let SftpReply::Extended(fields) = self.call(SftpRequest::Limits).await? else {
            return Ok(());
        };
        let mut fields = PacketReader(fields);
        // The length of a packet, which also has a header.
        fields.u64()?;
        let read = fields.u64()?;
        let write = fields.u64()?;
        self.limits = PacketLimits {
            read: usable(read),
            write: usable(write),
        };
        Ok(())
    }

    /// Maximum bytes of one read and of one write.
    pub(crate) fn limits(&self) -> PacketLimits {
        self.limits
    }

    /// Whether the server has an extension.
    pub fn has(&self, extension: &str) -> bool {
        self.version.extensions.contains_key(extension)
    }

    /// Sends a request and waits for its reply. Cancel safe: a request that was sent is performed,
    /// and a handle that it opens is closed.
    pub async fn call(&self, request: SftpRequest) -> Result<SftpReply, SftpError> {
        let Ok(place) = self.unless_silent(self.queue.reserve()).await? else {
            return Err(self.shared.why_ended());
        };
        // No await from here: a waiter whose packet is not sent would never be removed.
        let (id, mut answered) = self.shared.register()?;
        place.send(request.encode(id));
        match self.unless_silent(&mut answered).await? {
            Ok(answer) => answer,
            Err(_) => Err(SftpError::ConnectionLost),
        }
    }

    /// Sends a request without waiting for its reply, if the queue has room.
    pub(crate) fn send_only(&self, request: &SftpRequest) {
        if let Ok(place) = self.queue.try_reserve()
            && let Ok((id, _)) = self.shared.register()
        {
            place.send(request.encode(id));
        }
    }

    /// Awaits a future. Fails if no data was received or sent for `self.silence`.
    async fn unless_silent<T>(&self, waiting: impl Future<Output = T>) -> Result<T, SftpError> {
        let mut waiting = std::pin::pin!(waiting);
        // From now: an idle session is silent, too.
        let began = Instant::now();
        loop {
            let active = (*lock(&self.shared.active)).max(began);
            tokio::select! {
                // First: a caller that was slow to look finds its reply, not the silence.
                biased;
                done = &mut waiting => return Ok(done),
                () = sleep_until(active + self.silence) => {}
            }
            if *lock(&self.shared.active) <= active {
                return Err(SftpError::Silent(self.silence));
            }
        }
    }

    /// Sends a request whose reply is only a status.
    pub async fn status(&self, request: SftpRequest) -> Result<(), SftpError> {
        let reply = self.call(request).await?;
        if reply.is_status(SftpStatus::Ok) {
            return Ok(());
        }
        Err(unexpected(reply))
    }

    /// Sends a request whose reply is a handle.
    pub async fn handle(&self, request: SftpRequest) -> Result<Bytes, SftpError> {
        let reply = self.call(request).await?;
        let SftpReply::Handle(handle) = reply else { return Err(unexpected(reply)) };
        if handle.len() > MOST_HANDLE {
            return Err(SftpError::Protocol("a handle is too long"));
        }
        Ok(handle)
    }

    /// Sends a request whose reply is attributes.
    pub async fn attributes(&self, request: SftpRequest) -> Result<Attributes, SftpError> {
        let reply = self.call(request).await?;
        let SftpReply::Attributes(attributes) = reply else {
            return Err(unexpected(reply));
        };
        Ok(attributes)
    }

    /// Sends a request whose reply is names. `None` at the end of a directory.
    pub async fn names(
        &self,
        request: SftpRequest,
    ) -> Result<Option<Vec<DirectoryEntry>>, SftpError> {
        let reply = self.call(request).await?;
        if reply.is_status(SftpStatus::Eof) {
            return Ok(None);
        }
        let SftpReply::Names(names) = reply else { return Err(unexpected(reply)) };
        Ok(Some(names))
    }

    /// Sends a request whose reply is one path.
    pub async fn path(&self, request: SftpRequest) -> Result<Bytes, SftpError> {
        let mut names = self.names(request).await?.unwrap_or_default();
        if names.len() != 1 {
            return Err(SftpError::Protocol(
                "the server answered a request for one path with several names, or none",
            ));
        }
        Ok(names.remove(0).name)
    }

    /// Reads at most `length` bytes of a file. `None` at its end.
    pub async fn data(
        &self,
        handle: &Bytes,
        offset: u64,
        length: u32,
    ) -> Result<Option<Bytes>, SftpError> {
        let request = SftpRequest::Read {
            handle: handle.clone(),
            offset,
            length,
        };
        let reply = self.call(request).await?;
        if reply.is_status(SftpStatus::Eof) {
            return Ok(None);
        }
        let SftpReply::Data(data) = reply else { return Err(unexpected(reply)) };
        if data.is_empty() {
            return Err(SftpError::Protocol("the answer to a read has no bytes"));
        }
        if data.len() > usize::try_from(length).unwrap_or(usize::MAX) {
            return Err(SftpError::Protocol(
                "the answer to a read has more bytes than requested",
            ));
        }
        Ok(Some(data))
    }
}

/// Sends our version. Returns the server's.
async fn greet(
    reader: &mut ChannelReader,
    writer: &ChannelWriter,
    frames: &mut PacketAssembler,
    stderr: &mut Vec<u8>,
) -> Result<SftpVersion, SftpError> {
    // A server without SFTP may not read; its refusal must be read meanwhile.
    let sending = writer.send(hello());
    tokio::pin!(sending);
    let mut is_sent = false;
    loop {
        if let Some(packet) = frames.next_packet()? {
            let version = SftpVersion::decode(packet)?;
            if version.version < 3 {
                return Err(SftpError::Protocol("the server's version is below 3"));
            }
            return Ok(version);
        }
        let event = tokio::select! {
            sent = &mut sending, if !is_sent => {
                sent.map_err(lost)?;
                is_sent = true;
                continue;
            }
            event = reader.next() => event,
        };
        match event {
            Some(ChannelEvent::Data(data)) => frames.push(&data),
            Some(ChannelEvent::Failure) => return Err(SftpError::NoSubsystem),
            event => note_event(event, stderr)?,
        }
    }
}

impl Drop for SftpSession {
    fn drop(&mut self) {
        // A dropped `JoinSet` would abort the task. Detached, the task closes the channel.
        self.task.detach_all();
    }
}

/// A length within our limit. 0 means that the server has none.
fn usable(limit: u64) -> u32 {
    match u32::try_from(limit) {
        Ok(0) | Err(_) => MOST_LENGTH,
        Ok(limit) => limit.min(MOST_LENGTH),
    }
}

fn unexpected(reply: SftpReply) -> SftpError {
    match reply {
        SftpReply::Status {
            status: SftpStatus::Ok,
            ..
        } => SftpError::Protocol("a reply has no result"),
        SftpReply::Status { status, message } => SftpError::Refused { status, message },
        SftpReply::Handle(_)
        | SftpReply::Data(_)
        | SftpReply::Names(_)
        | SftpReply::Attributes(_)
        | SftpReply::Extended(_) => {
            SftpError::Protocol("a reply does not have the type of its request")
        }
    }
}

fn lost(error: ChannelError) -> SftpError {
    match error {
        ChannelError::TimedOut(limit) => SftpError::Silent(limit),
        ChannelError::ConnectionLost
        | ChannelError::OpenRefused
        | ChannelError::PtyRefused
        | ChannelError::NoGreeting(_)
        | ChannelError::Silent => SftpError::ConnectionLost,
    }
}

impl SessionState {
    /// A new waiter with its id.
    fn register(
        &self,
    ) -> Result<(u32, oneshot::Receiver<Result<SftpReply, SftpError>>), SftpError> {
        let mut waiting = lock(&self.waiting);
        if let Some(ended) = &waiting.ended {
            return Err(ended.clone());
        }
        let mut id = waiting.next_id;
        while waiting.waiters.contains_key(&id) {
            id = id.wrapping_add(1);
        }
        waiting.next_id = id.wrapping_add(1);
        let (answer, answered) = oneshot::channel();
        waiting.waiters.insert(id, answer);
        Ok((id, answered))
    }

    /// Hands a reply to its waiter. Returns a handle that nobody waits for.
    fn answer(&self, id: u32, reply: SftpReply) -> Result<Option<Bytes>, SftpError> {
        let waiter = lock(&self.waiting).waiters.remove(&id);
        let waiter = waiter.ok_or(SftpError::Protocol("a reply has an unknown id"))?;
        match waiter.send(Ok(reply)) {
            Err(Ok(SftpReply::Handle(handle))) => Ok(Some(handle)),
            Ok(()) | Err(_) => Ok(None),
        }
    }

    /// Ends the session: every waiter gets the reason, now and later.
    fn end(&self, error: &SftpError) {
        let mut waiting = lock(&self.waiting);
        waiting.ended = Some(error.clone());
        for waiter in std::mem::take(&mut waiting.waiters).into_values() {
            waiter.send(Err(error.clone())).ok();
        }
    }

    fn why_ended(&self) -> SftpError {
        lock(&self.waiting).ended.clone().unwrap_or(SftpError::ConnectionLost)
    }

    fn note_activity(&self) {
        *lock(&self.active) = Instant::now();
    }
}

/// The task that owns the channel.
struct PacketsInFlight {
    shared: Arc<SessionState>,
    reader: ChannelReader,
    writer: ChannelWriter,
    frames: PacketAssembler,
    stderr: Vec<u8>,
    queue: mpsc::WeakSender<OutgoingPacket>,
}

impl PacketsInFlight {
    async fn run(mut self, packets: mpsc::Receiver<OutgoingPacket>) {
        let ended = tokio::select! {
            ended = receive(
                &self.shared, &mut self.reader, &mut self.frames, &mut self.stderr, &self.queue,
            ) => ended,
            sent = send(&self.shared, &self.writer, packets) => sent,
        };
        if let Err(error) = ended {
            self.shared.end(&error);
        }
        self.writer.end(&mut self.reader).await;
    }
}

/// Sends packets until the session is dropped.
async fn send(
    shared: &SessionState,
    writer: &ChannelWriter,
    mut packets: mpsc::Receiver<OutgoingPacket>,
) -> Result<(), SftpError> {
    while let Some(OutgoingPacket { head, data }) = packets.recv().await {
        writer.send(head).await.map_err(lost)?;
        if !data.is_empty() {
            writer.send(data).await.map_err(lost)?;
        }
        shared.note_activity();
    }
    Ok(())
}

/// Hands replies to their waiters until the channel ends. Returns only with an error.
async fn receive(
    shared: &SessionState,
    reader: &mut ChannelReader,
    frames: &mut PacketAssembler,
    stderr: &mut Vec<u8>,
    queue: &mpsc::WeakSender<OutgoingPacket>,
) -> Result<(), SftpError> {
    loop {
        while let Some(packet) = frames.next_packet()? {
            let (id, reply) = SftpReply::decode(packet)?;
            // If the queue is full the handle stays open until the session ends.
            if let Some(unwanted) = shared.answer(id, reply)?
                && let Some(queue) = queue.upgrade()
                && let Ok(place) = queue.try_reserve()
                && let Ok((id, _)) = shared.register()
            {
                place.send(SftpRequest::Close(unwanted).encode(id));
            }
        }
        match reader.next().await {
            Some(ChannelEvent::Data(data)) => {
                shared.note_activity();
                frames.push(&data);
            }
            event => note_event(event, stderr)?,
        }
    }
}

/// Handles an event that is not data. The end of the channel is an error.
fn note_event(event: Option<ChannelEvent>, stderr: &mut Vec<u8>) -> Result<(), SftpError> {
    match event {
        None => Err(SftpError::ConnectionLost),
        Some(ChannelEvent::Close | ChannelEvent::Eof) => Err(SftpError::Ended {
            stderr: String::from_utf8_lossy(stderr).trim().replace(char::is_control, " "),
        }),
        Some(ChannelEvent::ExtendedData(text)) => {
            stderr.extend_from_slice(&text);
            let excess = stderr.len().saturating_sub(MOST_STDERR);
            stderr.drain(..excess);
            Ok(())
        }
        Some(
            ChannelEvent::Data(_)
            | ChannelEvent::ExitStatus(_)
            | ChannelEvent::ExitSignal(_)
            | ChannelEvent::Success
            | ChannelEvent::Failure,
        ) => Ok(()),
    }
}

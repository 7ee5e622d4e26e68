//! Sessions: a channel to a host's follower script, which sends frames.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::spool_calls::{install, note_refusal, run_on};
use crate::hosts::{HostRef, Hosts, Lease, Link};
use crate::runner::state::{FollowerSession, RunnerTasks, SessionStart, Sessions, SpawnError};
use sshjobs_job::spool::{self, FollowFrom, SpoolReply};
use sshjobs_ssh::{ChannelError, ChannelEvent, ChannelReader, ChannelWriter};

/// Sessions over SSH.
pub(crate) struct SshSessions {
    pub(crate) hosts: Arc<Hosts>,
    /// Time after which files of jobs that have ended are deleted on their hosts.
    pub(crate) keep_stored: Duration,
    pub(crate) tasks: RunnerTasks,
}

impl Sessions for SshSessions {
    fn start<'a>(
        &'a self,
        host: &'a HostRef,
        start: &'a (dyn Fn() -> SessionStart + Send + Sync),
    ) -> BoxFuture<'a, Result<Option<Box<dyn FollowerSession>>, SpawnError>> {
        self.start_session(host, start).boxed()
    }

    fn install<'a>(&'a self, host: &'a HostRef) -> BoxFuture<'a, Result<(), SpawnError>> {
        self.install_scripts(host).boxed()
    }

    fn pause_factor(&self) -> f64 {
        rand::random_range(0.5..1.5)
    }
}

impl SshSessions {
    async fn start_session(
        &self,
        host: &HostRef,
        start: &(dyn Fn() -> SessionStart + Send + Sync),
    ) -> Result<Option<Box<dyn FollowerSession>>, SpawnError> {
        let lease = self.hosts.pool().lease(host).await?;
        if !lease.connection().answers().await {
            return Ok(None);
        }
        let SessionStart { name, from } = start();
        let lines = FollowFrom::lines(&from);
        let (reader, writer) = match begin_following(lease.connection(), &name, &lines).await {
            Ok(opened) => opened,
            Err(error) => return Err(failed(host, note_refusal(lease, error))),
        };
        let link = Arc::clone(lease.connection());
        let days = self.keep_stored.as_secs() / (24 * 3600);
        // Housekeeping; no job waits for it.
        self.tasks
            .spawn(async move { drop(run_on(&link, &spool::sweep(days), &[]).await) });
        Ok(Some(Box::new(SshSession {
            reader,
            writer,
            lease,
        })))
    }

    async fn install_scripts(&self, host: &HostRef) -> Result<(), SpawnError> {
        let lease = self.hosts.pool().lease(host).await?;
        match install(lease.connection()).await.map_err(|source| failed(host, source))? {
            SpoolReply::Failed(why) | SpoolReply::Unsupported(why) => Err(SpawnError::Spool {
                host: host.name.clone(),
                why,
            }),
            SpoolReply::Done
            | SpoolReply::Told
            | SpoolReply::Send
            | SpoolReply::Missing
            | SpoolReply::At(_)
            | SpoolReply::Moved(_)
            | SpoolReply::Busy
            | SpoolReply::Taken
            | SpoolReply::NotBecome(_)
            | SpoolReply::Closed
            | SpoolReply::Fenced => Ok(()),
        }
    }
}

fn failed(host: &HostRef, source: ChannelError) -> SpawnError {
    SpawnError::Channel {
        host: host.name.clone(),
        source,
    }
}

/// Starts a follower on a host and sends it the lines that name the jobs. It ends when the writer is
/// closed.
pub(crate) async fn begin_following(
    link: &Link,
    name: &str,
    lines: &str,
) -> Result<(ChannelReader, ChannelWriter), ChannelError> {
    let channel = link.open().await?.channel;
    let (reader, writer) = channel.exec(&spool::follow(name)).await?;
    let mut left = lines.as_bytes();
    while !left.is_empty() {
        let written = writer.write(left).await?;
        left = &left[written..];
    }
    Ok((reader, writer))
}

/// A session over a channel.
struct SshSession {
    reader: ChannelReader,
    writer: ChannelWriter,
    lease: Lease<Arc<Link>>,
}

impl FollowerSession for SshSession {
    fn next(&mut self) -> BoxFuture<'_, Option<Bytes>> {
        async {
            loop {
                match self.reader.next().await {
                    Some(ChannelEvent::Data(bytes)) => {
                        self.lease.connection().traffic.note(bytes.len());
                        return Some(bytes);
                    }
                    None | Some(ChannelEvent::Close | ChannelEvent::Failure) => return None,
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
        .boxed()
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        self.writer.end(&mut self.reader).boxed()
    }
}

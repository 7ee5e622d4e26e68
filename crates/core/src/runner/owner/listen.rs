//! The server side: performs calls that only the owner of a job can perform.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};
use secrecy::zeroize::Zeroizing;
use tokio::io::AsyncReadExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::message::{OwnerCall, OwnerReply, OwnerRequest, receive, receive_data, send};
use super::short_path::ShortPath;
use crate::hosts::Asking;
use crate::runner::signal::{MEMBERS_AT_A_TIME, SignalReport, cancel_start, end_tree, merged};
use crate::runner::state::{RunnerState, SignalError, WriteError};
use sshjobs_job::{FarEndError, Fleet, Kill, Phase, Signal};
use sshjobs_output::TerminalSize;
use sshjobs_output::scrub::HiddenSecret;

/// Maximum calls handled at the same time.
const AT_A_TIME: usize = 32;
/// Time limit for a whole request to arrive.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// Pause after a failed `accept`.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers other processes, from the first job until the runner stops.
pub(crate) async fn listen(shared: Arc<RunnerState>) {
    let Some(storing) = &shared.storing else { return };
    let Some(path) = storing.store.socket(storing.store.own_name()) else { return };
    // A program that never owns a job needs no socket.
    let mut changes = shared.registry().changes.subscribe();
    if changes.wait_for(|counts| !counts.is_empty()).await.is_err() {
        return;
    }
    match bind(&path) {
        Ok(listener) => accept(&shared, &listener).await,
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "other processes can't reach our jobs")
        }
    }
}

/// The directory has mode 0700, so no other user reaches the socket before its mode is set.
fn bind(path: &PathBuf) -> io::Result<UnixListener> {
    let short = ShortPath::of(path)?;
    let listener = UnixListener::bind(short.as_path())?;
    // By the whole path: only the addresses of sockets have a length limit.
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600))?;
    Ok(listener)
}

async fn accept(shared: &Arc<RunnerState>, listener: &UnixListener) {
    let places = Arc::new(Semaphore::new(AT_A_TIME));
    let mut calls = JoinSet::new();
    loop {
        // Before `accept`, so that calls above the limit wait in the listener's backlog.
        let place = Arc::clone(&places).acquire_owned().await.expect("it is never closed");
        while calls.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = Arc::clone(shared);
                calls.spawn(async move {
                    if let Err(error) = answer(&shared, stream).await {
                        tracing::debug!(%error, "another process was not answered");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "another process could not be heard");
                sleep(PAUSE).await;
            }
        }
    }
}

async fn answer(shared: &RunnerState, mut stream: UnixStream) -> io::Result<()> {
    check_peer(&stream)?;
    let (request, data) = timeout(REQUEST_TIME, receive_whole(&mut stream)).await??;
    let (mut reading, mut writing) = stream.split();
    let reply = tokio::select! {
        reply = perform(shared, &request, &data) => reply,
        // The caller hung up, so stop. Bytes already written stay written.
        _ = reading.read_u8() => return Ok(()),
    };
    send(&mut writing, &reply).await
}

async fn receive_whole(stream: &mut UnixStream) -> io::Result<(OwnerRequest, Zeroizing<Vec<u8>>)> {
    let request: OwnerRequest = receive(stream).await?;
    let data = receive_data(stream, request.data_length).await?;
    Ok((request, data))
}

async fn perform(shared: &RunnerState, request: &OwnerRequest, data: &[u8]) -> OwnerReply {
    match try_to_perform(shared, request, data).await {
        Ok(reply) => reply,
        Err(error) => OwnerReply::Refused(error.into()),
    }
}

async fn try_to_perform(
    shared: &RunnerState,
    request: &OwnerRequest,
    data: &[u8],
) -> Result<OwnerReply, WriteError> {
    let (stdin, job) = {
        let registry = shared.registry();
        let entry = registry.jobs.get(&request.job).ok_or(WriteError::JobEnded)?;
        (registry.stdin(&request.job), Arc::clone(&entry.job))
    };
    let is_queued = job.read_log(|log| *log.phase() == Phase::Queued);
    if is_queued
        && let OwnerCall::Signal { .. } = &request.call
        && let Some(report) = cancel_start(shared, &job).await
    {
        return Ok(OwnerReply::Signalled(report));
    }
    let is_starting = job.read_log(|log| !log.phase().has_started());
    // A job that has ended keeps its stdin until its recorder calls `finish`.
    let stdin = if job.is_over() { None } else { stdin };
    let stdin = stdin.ok_or(if is_starting {
        WriteError::Starting
    } else {
        WriteError::JobEnded
    })?;
    match &request.call {
        OwnerCall::Write { patience } => {
            stdin.write(data, *patience).await.map(|()| OwnerReply::Done)
        }
        OwnerCall::CloseStdin { patience } => {
            stdin.close(*patience).await.map(|()| OwnerReply::Done)
        }
        OwnerCall::IsStdinClosed => Ok(OwnerReply::IsStdinClosed(stdin.is_closed())),
        OwnerCall::Hide { name } => {
            let value = std::str::from_utf8(data);
            let value = value.map_err(|_| FarEndError::Unsupported("takes only texts"))?;
            job.hide_secret(&HiddenSecret::new(name.as_str(), value.into()));
            Ok(OwnerReply::Done)
        }
        OwnerCall::Resize { cols, rows } => {
            let size = TerminalSize {
                cols: *cols,
                rows: *rows,
            };
            stdin.controls().resize(size).await?;
            job.note_resize(size);
            Ok(OwnerReply::Done)
        }
        OwnerCall::Signal { name, grace } => {
            let unknown = FarEndError::Unsupported("does not know this signal");
            let signal: Signal = name.parse().map_err(|_| WriteError::FarEnd(unknown))?;
            if let Some(fleet) = &job.fleet {
                if signal.ends() {
                    fleet.stop(signal);
                }
                if job.spec.durable {
                    // The caller signals durable members on their hosts, which must note it.
                    return Ok(OwnerReply::Done);
                }
                // Here and not by the caller, whose copy of the record may lack a new member.
                let report = signal_members(shared, fleet, Kill::new(signal, *grace)).await;
                let report = report.map_err(|_| WriteError::FarEnd(FarEndError::ConnectionLost))?;
                return Ok(OwnerReply::Signalled(report));
            }
            let report = end_tree(
                shared,
                &job,
                Kill::new(signal, *grace),
                stdin.controls(),
                Asking::Nobody,
            )
            .await;
            // On this error the caller uses its own connection.
            let report = report.map_err(|_| WriteError::FarEnd(FarEndError::ConnectionLost))?;
            if report.confirmed_dead {
                job.stop_pacing();
            }
            Ok(OwnerReply::Signalled(report))
        }
    }
}

/// Signals the members of a fleet that run in this process.
async fn signal_members(
    shared: &RunnerState,
    fleet: &Fleet,
    kill: Kill,
) -> Result<SignalReport, SignalError> {
    let running: Vec<_> = {
        let registry = shared.registry();
        let ids = fleet.members().into_iter().filter_map(|member| member.job);
        ids.filter_map(|id| {
            let job = Arc::clone(&registry.jobs.get(&id)?.job);
            Some((job, registry.stdin(&id)?))
        })
        .collect()
    };
    let mut signalled = Vec::new();
    for (job, stdin) in &running {
        signalled.push(end_tree(shared, job, kill, stdin.controls(), Asking::Nobody).boxed());
    }
    let reports = stream::iter(signalled).buffer_unordered(MEMBERS_AT_A_TIME);
    merged(reports.collect().await)
}

/// Checks that the other end is a process of the same user.
pub(super) fn check_peer(stream: &UnixStream) -> io::Result<()> {
    let peer = stream.peer_cred()?.uid();
    if peer == rustix::process::getuid().as_raw() {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "the other end is a process of user {peer}"
    )))
}

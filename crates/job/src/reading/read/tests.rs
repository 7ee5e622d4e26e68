use std::io;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;

use super::*;
use crate::log::LogChange;
use crate::{
    Archive, Caller, Coverage, Draft, Exit, LineSieve, Outcome, Positions, RecordingPlace, Storage,
    StoredPieces,
};
use sshjobs_base::lock::lock;
use sshjobs_output::{LineNo, RingLimits, RingOrigin};

/// An archive whose reads wait until the test drops its sender.
#[derive(Debug)]
struct SlowArchive(Mutex<Receiver<()>>);

impl Archive for SlowArchive {
    fn coverage(&self) -> Coverage {
        Coverage::default()
    }

    fn window(&self, _: OutputSpan, _: &dyn Fn(&Ring) -> bool) -> Option<Ring> {
        // The sender sends nothing: the wait ends when it is dropped.
        lock(&self.0).recv().unwrap_err();
        None
    }

    fn skim(&self, _: LineRange, _: Selection, _: &mut dyn LineSieve) -> Option<Skimmed> {
        None
    }

    fn forget(&self, _: Selection, _: LineNo) {}

    fn recording(&self, _: Option<RecordingPlace>) -> io::Result<StoredPieces> {
        Ok(StoredPieces::default())
    }

    fn read_deleted(&self) -> io::Result<RingOrigin> {
        Ok(RingOrigin::default())
    }
}

fn job_with_ring_of(lines: usize) -> Job {
    let spec = Draft::new("web1", "make").try_into().unwrap();
    Job::new(
        Caller::local(),
        spec,
        RingLimits {
            lines,
            ..RingLimits::default()
        },
    )
}

fn print(job: &Job, stream: Stream, text: &'static str) {
    job.record(
        vec![LogChange::Append(stream.into(), text.into())],
        Instant::now(),
    );
}

#[tokio::test]
async fn an_excerpt_locks_the_log_once() {
    let job = job_with_ring_of(100);
    print(&job, Stream::Stdout, "first\nlast\n");

    // Debug builds panic when it locks the log again under its own lock.
    let (excerpt, status) = job
        .excerpt(ExcerptBudget {
            whole: 1000,
            cut: 1000,
        })
        .await;

    let texts: Vec<_> = excerpt.head.into_iter().map(|line| line.text).collect();
    assert_eq!(texts, ["first", "last"]);
    assert_eq!(status.total_lines, 2);
}

#[tokio::test]
async fn bytes_after_the_end_of_a_stream_are_none_and_not_an_error() {
    let job = job_with_ring_of(100);
    print(&job, Stream::Stdout, "four");
    job.end(Outcome::Ended(Exit::Status(0)));

    let piece = job.stream_piece(Stream::Stdout, 1000).await;

    assert_eq!(
        piece,
        crate::StreamPiece {
            end: 1000,
            at_end: true,
            ..Default::default()
        }
    );
    assert!(job.stream_piece(Stream::Stdout, u64::MAX).await.bytes.is_empty());
}

#[tokio::test]
async fn a_follower_that_is_cancelled_while_the_store_is_read_loses_nothing() {
    let job = job_with_ring_of(1);
    let (finish_reads, reads) = std::sync::mpsc::channel::<()>();
    print(&job, Stream::Stderr, "evicted\n");
    print(&job, Stream::Stdout, "kept\n");
    job.store_in(Storage::new(Arc::new(SlowArchive(Mutex::new(reads))), None));
    let mut positions = Positions::default();

    let cut_off = tokio::time::timeout(Duration::from_millis(50), job.follow(&mut positions)).await;

    assert!(
        cut_off.is_err(),
        "stderr is read from the store, which waits"
    );
    assert_eq!(positions, Positions::default(), "no byte counts as read");

    drop(finish_reads);
    let chunk = job.follow(&mut positions).now_or_never();
    let chunk = match chunk {
        Some(chunk) => chunk,
        None => tokio::time::timeout(Duration::from_secs(10), job.follow(&mut positions))
            .await
            .unwrap(),
    };
    assert_eq!(chunk.stdout, b"kept\n");
}

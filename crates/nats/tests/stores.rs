//! One suite for all stores: whatever happens to a log, its readers can't distinguish it from a
//! plain list of lines.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use tokio::time::Instant;

use sshjobs_job::{
    Archive, Batch, Caller, Draft, EndOfJob, Exit, Job, JobId, JobIdentity, Log, LogChange,
    LogEvent, Matching, Outcome, OutputStore, Storage, StoreLoad, Wait,
};
use sshjobs_nats::{Nats, NatsOptions, NatsStore};
use sshjobs_output::{
    Content, Line, LineNo, Match, MemberNo, OutputSource, PageQuery, ReadQuery, Render, Ring,
    RingLimits, Search, SearchQuery, Selection, Stream, Unit,
};
use sshjobs_store::{
    Filter, LogLimits, Memory, Record, SegmentWriter, StateDir, Store, StoreLimits,
};

/// Ignores notifications: the test stores when it wants to.
struct Idle;

impl OutputStore for Idle {
    fn notify(&self, _job: &JobId) {}

    fn note_change(&self, _job: &JobId) {}

    fn account(&self, _bytes: isize) {}

    fn load(&self) -> StoreLoad {
        StoreLoad::Light
    }

    fn end_of_job(&self) -> EndOfJob {
        EndOfJob::IsShownAtOnce
    }
}

const RING: RingLimits = RingLimits {
    lines: 20,
    bytes: 2048,
    line_bytes: 64,
};
const LOG: LogLimits = LogLimits {
    bytes: 64 << 20,
    line_bytes: 64,
    interval: 300,
};

/// A job with stored output, and the expected output.
struct Kept {
    store: Box<dyn Store>,
    record: Record,
    job: Arc<Job>,
    writer: SegmentWriter,
    /// A ring that evicts nothing.
    model: Ring,
}

fn record(job: &Job, key: Option<&str>, store: &dyn Store) -> Record {
    Record {
        owner: store.own_name().to_owned(),
        ..Record::new(job, key, "fingerprint".to_owned())
    }
}

fn new_job(command: &str) -> Job {
    Job::new(
        Caller::local(),
        Draft::new("web1", command).try_into().unwrap(),
        RING,
    )
}

impl Kept {
    fn new(store: Box<dyn Store>) -> Self {
        let job = Arc::new(new_job("make"));
        let record = record(&job, None, &*store);
        assert_eq!(store.admit(&record).unwrap(), None);
        let log = store.log(&job.id);
        let writer = store.write(&log, LOG, None).unwrap();
        job.store_in(Storage::new(log, Some(Arc::new(Idle))));
        let model = Ring::new(RingLimits {
            lines: usize::MAX,
            bytes: usize::MAX / 2,
            line_bytes: 64,
        });
        Self {
            store,
            record,
            job,
            writer,
            model,
        }
    }

    fn say(&mut self, stream: Stream, bytes: &[u8]) {
        self.job.record(
            vec![LogChange::Append(stream.into(), bytes.to_vec().into())],
            Instant::now(),
        );
    }

    /// Stores and shows pending output, `most` bytes at a time.
    fn store(&mut self, most: usize) {
        while let Some(batch) = self.job.take_batch(most, self.writer.wants_checkpoint()) {
            self.writer.append(&batch).unwrap();
            for (event, ..) in &batch.events {
                if let LogEvent::Append(source, bytes) = event {
                    self.model.append(*source, bytes, 0);
                }
            }
            if let Some(newest) = self.job.show_attempted(true) {
                self.writer.note_newest(newest);
            }
        }
    }

    /// Another process resumes where this one was killed: output that was not stored was never
    /// shown.
    fn restart(&mut self) {
        let log = self.store.log(&self.job.id);
        let end = log.open(RING).unwrap();
        self.writer = self.store.write(&log, LOG, Some(&end)).unwrap();
        let identity = JobIdentity {
            id: self.job.id.clone(),
            mark: self.job.mark.clone(),
            caller: self.job.caller.clone(),
        };
        let log_of_job = Log::resumed(end.ring, self.record.past());
        let job = Job::begun(identity, self.record.spec().unwrap(), log_of_job);
        job.store_in(Storage::new(log, Some(Arc::new(Idle))));
        self.job = Arc::new(job);
    }

    fn expected(&self, selection: Selection) -> Vec<(u64, String)> {
        let lines = self.model.lines_after(LineNo::START, selection);
        lines
            .map(|line| (line.line_no.value(), line.render(Render::Raw).into_owned()))
            .collect()
    }

    /// Reads all lines by cursor, in pages of this size.
    async fn read(&self, selection: Selection, max_lines: usize) -> Vec<(u64, String)> {
        let mut lines = Vec::new();
        let mut cursor = LineNo::START;
        loop {
            let query = PageQuery {
                selection,
                max_lines,
                render: Render::Raw,
                ..PageQuery::after(cursor)
            };
            let tail = self.job.tail(&query, &Wait::default()).await.unwrap();
            assert_eq!(tail.page.dropped_lines, 0);
            lines.extend(tail.page.lines.into_iter().map(|line| (line.line_no.value(), line.text)));
            cursor = tail.page.last_line_no;
            if !tail.page.has_more {
                return lines;
            }
        }
    }

    async fn check(&self, offset: u64, max_lines: usize) {
        for selection in [
            Selection::Both,
            Selection::Only(Stream::Stdout),
            Selection::Only(Stream::Stderr),
        ] {
            let expected = self.expected(selection);
            assert_eq!(self.read(selection, max_lines).await, expected);
            let query = ReadQuery {
                unit: Unit::Lines,
                offset: i64::try_from(offset).unwrap(),
                length: 7,
                max_bytes: 1 << 20,
                selection,
                render: Render::Raw,
            };
            let (reading, _) = self.job.read(&query).await;
            let Content::Lines(lines) = reading.content else {
                panic!("lines were asked for")
            };
            let lines: Vec<_> =
                lines.into_iter().map(|line| (line.line_no.value(), line.text)).collect();
            let from = usize::try_from(offset).unwrap().min(expected.len());
            assert_eq!(lines, expected[from..expected.len().min(from + 7)]);
            assert_eq!(reading.total, expected.len() as u64);
        }
        for stream in Stream::ALL {
            let query = ReadQuery {
                unit: Unit::Bytes,
                offset: i64::try_from(offset).unwrap(),
                length: 100,
                max_bytes: 1 << 20,
                selection: Selection::Only(stream),
                render: Render::Raw,
            };
            let (reading, _) = self.job.read(&query).await;
            let (_, expected) = self.model.bytes_from(stream, offset, 100);
            assert_eq!(reading.content, Content::Bytes(expected.into_owned()));
        }
        let ways = [
            (0, Selection::Both),
            (2, Selection::Both),
            (1, Selection::Only(Stream::Stderr)),
        ];
        let (context, selection) = ways[max_lines % ways.len()];
        self.check_search(selection, context, max_lines + 20).await;
        assert_eq!(self.job.status().dropped_lines, 0);
    }

    /// Searches like a reader that continues with each cursor, and compares with a search of the
    /// model.
    async fn check_search(&self, selection: Selection, context: usize, max_matches: usize) {
        let pattern = regex::Regex::new("aa|^b").unwrap();
        let query = SearchQuery {
            cursor: LineNo::START,
            last: None,
            selection,
            context,
            max_matches,
            max_bytes: 1 << 20,
        };
        let mut cursor = LineNo::START;
        let mut found = Vec::new();
        loop {
            let matching = Matching::new([Some(pattern.clone())]);
            let page = self
                .job
                .search(
                    SearchQuery {
                        cursor,
                        last: None,
                        ..query.clone()
                    },
                    matching,
                )
                .await
                .unwrap();
            assert_eq!(page.dropped_lines, 0);
            found.extend(page.matches);
            cursor = page.last;
            if !page.has_more {
                break;
            }
        }
        let query = SearchQuery {
            max_matches: usize::MAX,
            ..query
        };
        let mut search = Search::new(query, &self.model, self.model.newest());
        while let Some(lines) = search.fetch(&self.model, usize::MAX) {
            for fetched in lines {
                let is_match = pattern.is_match(&fetched.line.text);
                search.take(fetched, is_match);
            }
        }
        // The model has other times, and the context after the last match of a page depends on the
        // available output.
        let texts = |found: Vec<Match>| -> Vec<_> {
            found
                .into_iter()
                .map(|found| {
                    let texts = |lines: Vec<Line>| -> Vec<String> {
                        lines.into_iter().map(|line| line.text).collect()
                    };
                    (
                        found.line.line_no,
                        found.line.text,
                        texts(found.before),
                        texts(found.after),
                    )
                })
                .collect()
        };
        assert_eq!(texts(found), texts(search.finish().0));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Say(Stream, Vec<u8>),
    Store(usize),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let stream = prop_oneof![Just(Stream::Stdout), Just(Stream::Stderr)];
    let text = prop_oneof![
        prop::collection::vec(
            prop_oneof![Just(b'a'), Just(b'b'), Just(b'\n'), Just(b'\r')],
            0..200
        ),
        prop::collection::vec(Just(b'x'), 0..300),
        (1..40_usize).prop_map(|lines| "dull\n".repeat(lines).into_bytes()),
        Just("é\u{1b}[1mbold\u{1b}[0m\n".as_bytes().to_vec()),
    ];
    prop_oneof![
        6 => (stream, text).prop_map(|(stream, text)| Step::Say(stream, text)),
        3 => (1..500_usize).prop_map(Step::Store),
        1 => Just(Step::Restart),
    ]
}

async fn play(store: Box<dyn Store>, steps: Vec<Step>, (offset, max_lines): (u64, usize)) {
    let mut kept = Kept::new(store);
    for step in steps {
        match step {
            Step::Say(stream, bytes) => kept.say(stream, &bytes),
            Step::Store(most) => kept.store(most),
            Step::Restart => {
                kept.restart();
                kept.check(offset, max_lines).await;
            }
        }
    }
    kept.store(64);
    kept.check(offset, max_lines).await;
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("tests/stores.regressions"))),
        ..ProptestConfig::with_cases(48)
    })]

    /// Invariants 2, 3, 4 and 9 over ring, store and restarts.
    #[test]
    fn a_stored_job_reads_as_a_plain_list_of_lines(
        steps in prop::collection::vec(step(), 0..60),
        offset in 0..400_u64,
        max_lines in 1..30_usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            play(Box::new(Memory::default()), steps.clone(), (offset, max_lines)).await;
            let directory = tempfile::tempdir().unwrap();
            let store = StateDir::open(&directory.path().join("state"), "").unwrap();
            play(Box::new(store), steps, (offset, max_lines)).await;
        });
    }
}

#[test]
#[ignore = "needs NATS: `make test-cluster`"]
fn a_job_stored_in_nats_reads_as_a_plain_list_of_lines() {
    let nats = sshjobs::testing::NatsServer::start().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(24));
    let number = std::cell::Cell::new(0);
    let steps = (
        prop::collection::vec(step(), 0..60),
        0..400_u64,
        1..30_usize,
    );
    runner
        .run(&steps, |(steps, offset, max_lines)| {
            number.set(number.get() + 1);
            let options = NatsOptions {
                prefix: format!("case-{}", number.get()),
                ..NatsOptions::new(vec![nats.url()])
            };
            let store = NatsStore::open(&Nats::connect(&options).unwrap(), "test").unwrap();
            runtime.block_on(play(Box::new(store), steps, (offset, max_lines)));
            Ok(())
        })
        .unwrap();
}

/// Two processes, and what their store is in.
type Pair = (Box<dyn Store>, Box<dyn Store>, Box<dyn std::any::Any>);

fn pairs() -> Vec<Pair> {
    let memory = Memory::default();
    let other = memory.join();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let one = StateDir::open(&path, "").unwrap();
    let two = StateDir::open(&path, "").unwrap();
    let mut pairs: Vec<Pair> = vec![
        (Box::new(memory), Box::new(other), Box::new(())),
        (Box::new(one), Box::new(two), Box::new(directory)),
    ];
    if let Some(pair) = in_nats() {
        pairs.push(pair);
    }
    pairs
}

/// `make test-cluster` has NATS, and runs this suite, too. Elsewhere it tests the other stores.
fn in_nats() -> Option<Pair> {
    std::env::var_os("NATS_SERVER")?;
    let nats = sshjobs::testing::NatsServer::start().unwrap();
    let open = || {
        let options = NatsOptions::new(vec![nats.url()]);
        Box::new(NatsStore::open(&Nats::connect(&options).unwrap(), "test").unwrap())
    };
    Some((open(), open(), Box::new(nats)))
}

/// Repeating a call whose host could not be reached starts the job.
#[tokio::test]
async fn the_key_of_a_start_that_failed_is_free() {
    for (store, _other, _held) in pairs() {
        let (failed, again) = (new_job("make"), new_job("make"));
        assert_eq!(
            store.admit(&record(&failed, Some("k"), &*store)).unwrap(),
            None
        );
        store.withdraw(&failed.id).unwrap();
        assert_eq!(store.get(&failed.id).unwrap().map(|record| record.id), None);
        assert_eq!(
            store.admit(&record(&again, Some("k"), &*store)).unwrap(),
            None
        );
    }
}

#[tokio::test]
async fn a_key_is_one_jobs_in_all_processes() {
    for (one, two, _directory) in pairs() {
        let first = record(&new_job("make"), Some("k"), &*one);
        assert_eq!(one.admit(&first).unwrap(), None);
        let mut second = record(&new_job("make"), Some("k"), &*two);
        second.host = "web2".to_owned();
        assert_eq!(
            two.admit(&second).unwrap().map(|known| known.id),
            Some(first.id.clone())
        );
        assert_eq!(two.get(&second.id).unwrap(), None);
        one.remove(&first.id).unwrap();
        // A store of several machines keeps the key as long as a tombstone. Otherwise the process
        // that has removed the job does.
        let tombstone = two.tombstone(&first.id).unwrap();
        assert_eq!(
            two.admit(&second).unwrap().map(|known| known.id),
            tombstone.map(|record| record.id)
        );
    }
}

#[tokio::test]
async fn an_orphan_is_claimed_once_and_only_when_its_process_has_ended() {
    for (one, two, directory) in pairs() {
        let job = record(&new_job("make"), None, &*one);
        one.admit(&job).unwrap();
        assert_eq!(two.orphans(&|_| false).unwrap(), []);
        assert!(two.owner(&job.owner).is_some());
        drop(one);
        let orphans = two.orphans(&|_| false).unwrap();
        assert_eq!(orphans.len(), 1);
        assert!(two.claim(&orphans[0]).unwrap());
        assert!(
            !two.claim(&orphans[0]).unwrap(),
            "it is not the ended one's any more"
        );
        assert_eq!(two.get(&job.id).unwrap().unwrap().owner, two.own_name());
        drop(directory);
    }
}

#[tokio::test]
async fn a_record_of_a_job_that_was_claimed_is_not_overwritten_by_who_had_it() {
    for (one, two, _directory) in pairs() {
        let job = record(&new_job("make"), None, &*one);
        one.admit(&job).unwrap();
        if !two.claim(&job).unwrap() {
            // Stores that know better than the caller that the owner is alive refuse the claim.
            continue;
        }
        one.put(&[Record {
            total_lines: 7,
            ..job.clone()
        }])
        .unwrap();
        assert_eq!(two.get(&job.id).unwrap().unwrap().total_lines, 0);
    }
}

#[tokio::test]
async fn lists_are_filtered_counted_and_newest_first() {
    for (store, _, _directory) in pairs() {
        for (number, host) in ["a", "b", "a", "a"].into_iter().enumerate() {
            let mut record = record(&new_job("make"), None, &*store);
            record.host = host.to_owned();
            record.started_at = number as u64;
            store.admit(&record).unwrap();
        }
        let filter = Filter {
            host: Some("a".into()),
            limit: 2,
            ..Filter::default()
        };
        let (found, total) = store.list(&filter).unwrap();
        assert_eq!(
            (
                found.iter().map(|record| record.started_at).collect::<Vec<_>>(),
                total
            ),
            (vec![3, 2], 3)
        );
        let running = Filter {
            state: Some("running"),
            ..Filter::default()
        };
        assert_eq!(store.list(&running).unwrap().1, 0);
    }
}

#[tokio::test]
async fn what_is_old_or_too_much_goes_and_the_oldest_output_first() {
    for (store, _, _directory) in pairs() {
        let ended = |ended_at, stored_bytes| {
            let outcome = Some(Outcome::Ended(Exit::Status(0)));
            let record = record(&new_job("make"), None, &*store);
            Record {
                ended_at: Some(ended_at),
                outcome,
                stored_bytes,
                total_lines: 5,
                ..record
            }
        };
        let records = [ended(100, 10), ended(5000, 10), ended(6000, 10)];
        for record in &records {
            store.admit(record).unwrap();
        }
        store
            .sweep(
                &StoreLimits {
                    bytes: 10,
                    age: 2000,
                },
                6500,
            )
            .unwrap();
        let bytes = |index: usize| {
            store
                .get(&records[index].id)
                .unwrap()
                .map(|record| (record.stored_bytes, record.dropped_lines))
        };
        assert_eq!(
            [bytes(0), bytes(1), bytes(2)],
            [None, Some((0, 5)), Some((10, 0))]
        );
    }
}

#[tokio::test]
async fn a_torn_end_is_cut_off_wherever_it_is_torn() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let mut kept = Kept::new(Box::new(StateDir::open(&path, "").unwrap()));
    kept.say(Stream::Stdout, b"one\ntwo\nhalf");
    kept.store(1 << 20);
    let whole = std::fs::read(segment(&path)).unwrap();
    kept.say(Stream::Stdout, b" done\n");
    kept.store(1 << 20);
    let longer = std::fs::read(segment(&path)).unwrap();
    for cut in whole.len()..longer.len() {
        std::fs::write(segment(&path), &longer[..cut]).unwrap();
        let log = kept.store.log(&kept.job.id);
        let end = log.open(RING).unwrap();
        assert_eq!(end.ring.newest().value(), 2, "cut at {cut}");
        assert_eq!(&*end.ring.partial(Stream::Stdout), b"half");
    }
    let waits = Wait {
        patience: Duration::ZERO,
        ..Wait::default()
    };
    kept.model = Ring::new(RingLimits { lines: 100, ..RING });
    kept.model.append(Stream::Stdout, b"one\ntwo\nhalf again\n", 0);
    kept.restart();
    kept.job.record(
        vec![LogChange::Append(Stream::Stdout.into(), " again\n".into())],
        Instant::now(),
    );
    let batch = kept.job.take_batch(1 << 20, kept.writer.wants_checkpoint()).unwrap();
    kept.writer.append(&batch).unwrap();
    kept.job.show_attempted(true);
    let tail = kept.job.tail(&PageQuery::after(LineNo::START), &waits).await.unwrap();
    assert_eq!(
        tail.page.lines.iter().map(|line| line.text.as_str()).collect::<Vec<_>>(),
        ["one", "two", "half again"]
    );
}

#[tokio::test]
async fn a_stored_line_of_a_fleet_has_its_member() {
    let mut kept = Kept::new(Box::new(Memory::default()));
    let member = MemberNo::at(6);
    let source = OutputSource::of_member(member, Stream::Stderr);
    kept.job.record(
        vec![LogChange::Append(source, "text\n".into())],
        Instant::now(),
    );
    kept.store(1 << 20);

    let end = kept.store.log(&kept.job.id).open(RING).unwrap();
    let cursor = LineNo::START;
    kept.job.trim(0);
    let tail = kept.job.tail(&PageQuery::after(cursor), &Wait::default()).await.unwrap();

    assert_eq!(end.ring.newest().value(), 1);
    assert_eq!(tail.page.lines[0].member, member);
    assert_eq!(tail.page.lines[0].text, "text");
}

#[tokio::test]
async fn a_search_of_much_that_is_stored_finds_what_a_search_of_the_lines_does() {
    let mut kept = Kept::new(Box::new(Memory::default()));
    for number in 0..3000 {
        let (stream, text) = match number % 500 {
            123 => (Stream::Stdout, "aa: a match\n".to_owned()),
            200 => (Stream::Stderr, "b: on the other stream\n".to_owned()),
            300 => (
                Stream::Stdout,
                "\x1b[1ma\x1b[0ma: found as it is seen\n".to_owned(),
            ),
            // Cut into pieces, one of which starts with the searched text.
            400 => (
                Stream::Stdout,
                format!("{}b{}\n", "x".repeat(64), "y".repeat(80)),
            ),
            450 => (Stream::Stdout, "a".to_owned()),
            _ => (Stream::Stdout, format!("dull line {number}\n")),
        };
        kept.say(stream, text.as_bytes());
        kept.store(1 << 20);
        if number % 25 == 7 {
            // Cut within an escape sequence, so that the following bytes are not plain text.
            kept.say(Stream::Stdout, &[&[b'x'; 62][..], b"\x1b[1"].concat());
            kept.store(1 << 20);
            kept.say(Stream::Stdout, b"mb: starts with the searched text\n");
            kept.store(1 << 20);
        }
    }
    for selection in [
        Selection::Both,
        Selection::Only(Stream::Stdout),
        Selection::Only(Stream::Stderr),
    ] {
        for (context, max_matches) in [(0, 1000), (2, 3), (20, 5)] {
            kept.check_search(selection, context, max_matches).await;
        }
    }
}

#[tokio::test]
async fn what_is_left_of_a_stream_is_found_behind_much_that_was_forgotten() {
    let mut kept = Kept::new(Box::new(Memory::default()));
    for round in 0..4 {
        kept.say(Stream::Stdout, &b"forgotten\n".repeat(3000));
        kept.say(Stream::Stderr, format!("kept {round}\n").as_bytes());
        kept.store(1 << 20);
    }
    assert_eq!(
        kept.job.forget_output(Selection::Only(Stream::Stdout)).await.0,
        12_000
    );
    kept.say(Stream::Stdout, &b"new\n".repeat(30));
    kept.store(1 << 20);
    let (texts, dropped) = read_counting(&kept.job, 7).await;
    let expected = (0..4)
        .map(|round| format!("kept {round}"))
        .chain(std::iter::repeat_n("new".to_owned(), 30));
    assert_eq!((texts, dropped), (expected.collect::<Vec<_>>(), 12_000));
}

#[tokio::test]
async fn output_that_two_processes_delete_at_once_is_all_deleted() {
    for (one, two, _directory) in pairs() {
        let mut kept = Kept::new(one);
        kept.say(Stream::Stdout, b"out\n");
        kept.say(Stream::Stderr, b"err\n");
        kept.store(1 << 20);
        let of_two = two.log(&kept.job.id);
        of_two.open(RING).unwrap();

        // Neither knows of the other's deletion.
        of_two.forget(Selection::Only(Stream::Stderr), LineNo::new(2));
        kept.job.forget_output(Selection::Only(Stream::Stdout)).await;

        let left = two.log(&kept.job.id);
        left.open(RING).unwrap();
        assert_eq!(left.coverage().begin.stdout.last_line, LineNo::new(1));
        assert_eq!(left.coverage().begin.stderr.last_line, LineNo::new(2));
    }
}

#[tokio::test]
async fn nothing_remains_to_read_after_all_output_is_deleted() {
    let mut kept = Kept::new(Box::new(Memory::default()));
    kept.say(Stream::Stdout, &b"forgotten\n".repeat(3000));
    kept.store(1 << 20);
    kept.job.forget_output(Selection::Both).await;
    kept.restart();

    let query = ReadQuery {
        unit: Unit::Lines,
        offset: 0,
        length: 10,
        max_bytes: 1 << 20,
        selection: Selection::Both,
        render: Render::Raw,
    };
    let (reading, _) = kept.job.read(&query).await;

    assert_eq!(reading.returned(), 0);
    assert_eq!(reading.available_from, 3000);
    assert_eq!(reading.remaining(), 0);
}

#[tokio::test]
async fn output_that_a_hung_disk_delays_is_shown_unstored_and_storing_continues_after_a_gap() {
    let mut kept = Kept::new(Box::new(Memory::default()));
    kept.say(Stream::Stdout, b"one\n");
    kept.store(1 << 20);
    kept.say(Stream::Stdout, b"two\n");
    let hung = kept.job.take_batch(1 << 20, false).unwrap();
    kept.say(Stream::Stdout, b"three\n");
    assert!(
        !kept.job.show_overdue(Duration::from_secs(60)),
        "it is not time yet"
    );
    assert_eq!(kept.job.status().total_lines, 1);
    assert!(kept.job.show_overdue(Duration::ZERO));
    assert_eq!(kept.job.status().total_lines, 3);
    // The disk works again: output that was shown is not shown again.
    kept.writer.append(&hung).unwrap();
    let newest = kept.job.show_attempted(true);
    assert_eq!(
        newest.map(LineNo::value),
        Some(2),
        "it is stored all the same"
    );
    kept.writer.note_newest(newest.unwrap());
    kept.say(Stream::Stdout, b"four\n");
    kept.store(1 << 20);
    let tail = kept.job.tail(&PageQuery::after(LineNo::START), &Wait::default()).await.unwrap();
    let lines: Vec<_> = tail
        .page
        .lines
        .iter()
        .map(|line| (line.line_no.value(), line.text.as_str()))
        .collect();
    assert_eq!(lines, [(1, "one"), (2, "two"), (3, "three"), (4, "four")]);
    kept.say(Stream::Stdout, &b"new\n".repeat(RING.lines));
    kept.store(1 << 20);
    assert_eq!(
        kept.job.status().dropped_lines,
        1,
        "only the third is in neither the ring nor the store"
    );
    kept.restart();
    let (lines, dropped) = read_counting(&kept.job, 7).await;
    assert_eq!(
        (&lines[..3], dropped),
        (&["one", "two", "four"].map(str::to_owned)[..], 1)
    );
}

/// Reads all lines in pages of this size, and counts evicted ones.
async fn read_counting(job: &Job, max_lines: usize) -> (Vec<String>, u64) {
    let mut cursor = LineNo::START;
    let mut texts = Vec::new();
    let mut dropped = 0;
    loop {
        let query = PageQuery {
            max_lines,
            render: Render::Raw,
            ..PageQuery::after(cursor)
        };
        let page = job.tail(&query, &Wait::default()).await.unwrap().page;
        texts.extend(page.lines.into_iter().map(|line| line.text));
        (cursor, dropped) = (page.last_line_no, dropped + page.dropped_lines);
        if !page.has_more {
            return (texts, dropped);
        }
    }
}

#[test]
fn records_and_sweeps_survive_a_clock_that_jumps() {
    let store = Memory::default();
    let job = record(&new_job("make"), None, &store);
    let outcome = Some(Outcome::Ended(Exit::Status(0)));
    // It ended in the future, because the clock was set back.
    let ended = Record {
        ended_at: Some(10_000_000),
        outcome,
        ..job
    };
    store.admit(&ended).unwrap();
    store
        .sweep(
            &StoreLimits {
                bytes: 1 << 30,
                age: 2000,
            },
            5_000_000,
        )
        .unwrap();
    assert!(store.get(&ended.id).unwrap().is_some(), "it is not old");
    store
        .sweep(
            &StoreLimits {
                bytes: 1 << 30,
                age: 2000,
            },
            10_002_001,
        )
        .unwrap();
    assert!(store.get(&ended.id).unwrap().is_none());
}

#[tokio::test]
async fn output_that_came_while_the_clock_jumped_is_read_in_order() {
    for forth in [false, true] {
        let mut kept = Kept::new(Box::new(Memory::default()));
        for round in 0..40_u64 {
            kept.say(
                Stream::Stdout,
                format!("line {round}\n").repeat(20).as_bytes(),
            );
            // Written by a clock that was set back, or ahead, between two batches.
            let batch = kept.job.take_batch(1 << 20, kept.writer.wants_checkpoint()).unwrap();
            let at = if forth {
                1_000_000 * round
            } else {
                100_000_000 - 1_000_000 * round
            };
            let events =
                batch.events.iter().map(|(event, _, now)| (event.clone(), at, *now)).collect();
            let jumped = Batch::new(events, batch.checkpoint.clone());
            kept.writer.append(&jumped).unwrap();
            let newest = kept.job.show_attempted(true).unwrap();
            kept.writer.note_newest(newest);
            kept.model.append(
                Stream::Stdout,
                format!("line {round}\n").repeat(20).as_bytes(),
                0,
            );
        }
        kept.check(333, 7).await;
        kept.restart();
        kept.check(333, 7).await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("tests/stores.regressions"))),
        ..ProptestConfig::with_cases(48)
    })]

    /// A disk that has changed its data: a read returns the original data or nothing, never
    /// anything else.
    #[test]
    fn damaged_files_lose_lines_and_invent_none(
        damages in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        is_index in any::<bool>(),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("state");
            let mut kept = Kept::new(Box::new(StateDir::open(&path, "").unwrap()));
            for number in 0..200 {
                kept.say(if number % 3 == 0 { Stream::Stderr } else { Stream::Stdout }, format!("line {number}\n").as_bytes());
                kept.store(1);
            }
            let expected = kept.expected(Selection::Both);
            let file = segment(&path).with_extension(if is_index { "idx" } else { "log" });
            let mut bytes = std::fs::read(&file).unwrap();
            for (place, flip) in damages {
                let at = place.index(bytes.len());
                bytes[at] ^= flip;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            std::fs::write(&file, bytes).unwrap();
            // Only its files remember the job.
            kept.restart();
            let mut cursor = LineNo::START;
            let mut lines = 0;
            loop {
                let query = PageQuery { max_lines: 50, render: Render::Raw, ..PageQuery::after(cursor) };
                let page = kept.job.tail(&query, &Wait::default()).await.unwrap().page;
                for line in &page.lines {
                    let number = usize::try_from(line.line_no.value()).unwrap();
                    assert_eq!((line.line_no.value(), line.text.clone()), expected[number - 1]);
                }
                lines += page.lines.len();
                assert!(page.last_line_no > cursor || !page.has_more, "it continues");
                cursor = page.last_line_no;
                if !page.has_more {
                    break;
                }
            }
            assert!(lines <= 200);
        });
    }
}

#[tokio::test]
async fn a_damaged_block_loses_its_lines_alone_and_they_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let mut kept = Kept::new(Box::new(StateDir::open(&path, "").unwrap()));
    for number in 0..2000 {
        kept.say(Stream::Stdout, format!("line {number}\n").as_bytes());
        kept.store(1);
    }
    let expected = kept.expected(Selection::Both);
    let file = segment(&path);
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x55;
    std::fs::write(&file, bytes).unwrap();
    kept.restart();

    let (mut cursor, mut lines, mut dropped) = (LineNo::START, 0, 0);
    loop {
        let query = PageQuery {
            max_lines: 50,
            render: Render::Raw,
            ..PageQuery::after(cursor)
        };
        let page = kept.job.tail(&query, &Wait::default()).await.unwrap().page;
        for line in &page.lines {
            let number = usize::try_from(line.line_no.value()).unwrap();
            assert_eq!(
                (line.line_no.value(), line.text.clone()),
                expected[number - 1]
            );
        }
        lines += page.lines.len() as u64;
        dropped += page.dropped_lines;
        cursor = page.last_line_no;
        if !page.has_more {
            break;
        }
    }

    assert_eq!(lines + dropped, 2000);
    // A checkpoint is stored every 300 bytes.
    assert!((1..50).contains(&dropped), "{dropped}");
}

/// The only segment.
fn segment(state: &std::path::Path) -> std::path::PathBuf {
    let folders = std::fs::read_dir(state.join("output")).unwrap();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
    let mut logs = files
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "log"));
    logs.next().unwrap()
}

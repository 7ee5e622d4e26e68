//! What only a store of several machines promises.

use std::time::Duration;

use sshjobs::testing::NatsServer;

use super::{Nats, NatsOptions, NatsStore};
use sshjobs_job::{Batch, Caller, Draft, Job, LogEvent, Outcome};
use sshjobs_output::{Checkpoint, RingLimits, Stream};
use sshjobs_store::{LogLimits, Record, Store};

const LOG: LogLimits = LogLimits {
    bytes: 64 << 20,
    line_bytes: 64,
    interval: 300,
};

fn open(nats: &NatsServer, lease: Duration) -> NatsStore {
    let options = NatsOptions {
        lease,
        ..NatsOptions::new(vec![nats.url()])
    };
    NatsStore::open(&Nats::connect(&options).unwrap(), "test").unwrap()
}

fn new_record(store: &NatsStore, host: &str) -> Record {
    let spec = Draft::new(host, "make").try_into().unwrap();
    let job = Job::new(Caller::local(), spec, RingLimits::default());
    Record {
        owner: store.own_name().to_owned(),
        ..Record::new(&job, None, String::new())
    }
}

fn line(text: &str) -> Batch {
    batch(text, None)
}

fn batch(text: &str, checkpoint: Option<Checkpoint>) -> Batch {
    let bytes = bytes::Bytes::copy_from_slice(text.as_bytes());
    let event = LogEvent::Append(Stream::Stdout.into(), bytes);
    Batch::new(vec![(event, 0, tokio::time::Instant::now())], checkpoint)
}

/// Repeats a check until it succeeds, at most for five seconds.
fn eventually<T>(what: &str, check: impl Fn() -> Option<T>) -> T {
    for _ in 0..500 {
        if let Some(found) = check() {
            return found;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    panic!("not within five seconds: {what}");
}

#[test]
#[ignore = "needs NATS: `make test-cluster`"]
fn a_replica_that_was_paused_writes_nothing_after_its_job_was_taken_over() {
    let nats = NatsServer::start().unwrap();
    let lease = Duration::from_millis(600);
    let mut paused = open(&nats, lease);
    let record = new_record(&paused, "web1");
    paused.admit(&record).unwrap();
    let log = paused.log(&record.id);
    let mut writer = paused.write(&log, LOG, None).unwrap();
    writer.append(&line("before\n")).unwrap();

    let other = open(&nats, lease);
    assert!(!other.claim(&record).unwrap(), "its owner is alive");
    paused.pause();
    let orphans = eventually("the job is an orphan", || {
        Some(other.orphans(&|_| false).unwrap()).filter(|orphans| !orphans.is_empty())
    });
    assert!(other.claim(&orphans[0]).unwrap());
    let taken_over = other.log(&record.id);
    let end = taken_over.open(RingLimits::default()).unwrap();
    let mut new_writer = other.write(&taken_over, LOG, Some(&end)).unwrap();
    let checkpoint = Some(end.ring.checkpoint());
    new_writer.append(&batch("by the new owner\n", checkpoint)).unwrap();
    let refused = writer.append(&line("after\n"));
    // The second attempt cuts off what the first one may have stored, and nothing of the new owner's.
    assert!(writer.append(&line("after\n")).is_err());
    paused
        .put(&[Record {
            total_lines: 7,
            ..record.clone()
        }])
        .unwrap();

    assert!(refused.is_err());
    assert!(paused.write(&log, LOG, None).unwrap().append(&line("again\n")).is_err());
    let taken = other.get(&record.id).unwrap().unwrap();
    assert_eq!(
        (taken.total_lines, taken.owner.as_str()),
        (0, other.own_name())
    );
    let end = other.log(&record.id).open(RingLimits::default()).unwrap();
    assert_eq!(
        end.ring.newest().value(),
        2,
        "the line before the take-over, and the new owner's"
    );
    assert_eq!(end.outcome.map(|(outcome, _)| outcome), None::<Outcome>);
}

#[test]
#[ignore = "needs NATS: `make test-cluster`"]
fn a_host_has_one_holder_and_the_fencing_token_grows() {
    let nats = NatsServer::start().unwrap();
    let lease = Duration::from_millis(600);
    let one = open(&nats, lease);
    let two = open(&nats, lease);
    let token = one.host_token("web1").unwrap();

    assert_eq!(two.host_token("web1"), None);
    drop(one);
    let next = eventually("the host is free", || two.host_token("web1"));
    assert!(next > token);
}

#[test]
#[ignore = "needs NATS: `make test-cluster`"]
fn a_reader_at_another_replica_is_told_of_new_output() {
    let nats = NatsServer::start().unwrap();
    let one = open(&nats, Duration::from_secs(6));
    let two = open(&nats, Duration::from_secs(6));
    let record = new_record(&one, "web1");
    one.admit(&record).unwrap();
    let mut writer = one.write(&one.log(&record.id), LOG, None).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();

    let log = two.log(&record.id);
    let mut news = log.news();
    let told = runtime.block_on(async {
        for _ in 0..100 {
            // The subscription may arrive after the first lines.
            writer.append(&line("line\n")).unwrap();
            if tokio::time::timeout(Duration::from_millis(50), news.next()).await.is_ok() {
                return true;
            }
        }
        false
    });

    assert!(told);
    let end = log.open(RingLimits::default()).unwrap();
    assert!(end.ring.newest().value() > 0);
}

#[test]
#[ignore = "needs NATS: `make test-cluster`"]
fn heads_of_audit_logs_are_kept_in_order_and_can_not_be_deleted() {
    let nats = NatsServer::start().unwrap();
    let store = open(&nats, Duration::from_secs(6));
    for (log, head) in [
        ("web-a:/audit", "1:aa"),
        ("web-b:/audit", "1:bb"),
        ("web-a:/audit", "2:cc"),
    ] {
        store.keep_audit_head(log, head).unwrap();
    }

    let handle = Nats::connect(&NatsOptions::new(vec![nats.url()])).unwrap();
    let heads = |log| {
        let kept = handle.audit_heads(log).unwrap();
        kept.into_iter().map(|kept| kept.head).collect::<Vec<_>>()
    };
    assert_eq!(heads(Some("web-a:/audit")), ["1:aa", "2:cc"]);
    assert_eq!(heads(None), ["1:bb", "2:cc"], "the newest of each");
    assert_eq!(heads(Some("web-c:/audit")), [""; 0]);

    let deleting = async {
        let stream = handle.0.jetstream.get_stream("sshjobs_audit").await.unwrap();
        assert!(stream.delete_message(1).await.is_err());
        assert!(stream.purge().await.is_err());
        Ok::<(), sshjobs_store::StoreError>(())
    };
    handle.0.wait(deleting).unwrap();
    assert_eq!(heads(Some("web-a:/audit")).len(), 2);
}

#[test]
#[ignore = "needs NATS: `make test-cluster`"]
fn of_writers_that_race_at_three_servers_none_fails() {
    const ROUNDS: usize = 40;
    let nats = NatsServer::cluster().unwrap();
    let stores: Vec<NatsStore> =
        nats.iter().map(|nats| open(nats, Duration::from_secs(6))).collect();
    std::thread::scope(|scope| {
        for store in stores.iter().cycle().take(9) {
            scope.spawn(|| {
                let text = store.shared_text("raced").unwrap();
                for _ in 0..ROUNDS {
                    loop {
                        text.refresh().unwrap();
                        let read = text.read();
                        let count: usize = read.text.parse().unwrap_or_default();
                        let next = (count + 1).to_string();
                        if text.replace(&next, read.version).unwrap() {
                            break;
                        }
                    }
                }
            });
        }
    });

    let text = stores[0].shared_text("raced").unwrap();
    text.refresh().unwrap();
    assert_eq!(
        text.read().text,
        (9 * ROUNDS).to_string(),
        "each write counts once"
    );
}

#[test]
#[ignore = "needs NATS: `make test-cluster`"]
fn of_starts_that_race_with_one_key_one_gets_it_and_none_fails() {
    let nats = NatsServer::cluster().unwrap();
    let stores: Vec<NatsStore> =
        nats.iter().map(|nats| open(nats, Duration::from_secs(6))).collect();
    for round in 0..20 {
        let key = format!("key-{round}");
        let admitted: Vec<Option<Record>> = std::thread::scope(|scope| {
            let racing = stores.iter().cycle().take(9).enumerate().map(|(number, store)| {
                let key = &key;
                scope.spawn(move || {
                    let record = Record {
                        key: Some(key.clone()),
                        ..new_record(store, &format!("host{number}"))
                    };
                    store.admit(&record).unwrap()
                })
            });
            let racing: Vec<_> = racing.collect();
            racing.into_iter().map(|racer| racer.join().unwrap()).collect()
        });

        let winners = admitted.iter().filter(|earlier| earlier.is_none()).count();
        assert_eq!(winners, 1, "{key}");
        let mut found: Vec<_> = admitted
            .into_iter()
            .flatten()
            .map(|earlier| earlier.id.as_str().to_owned())
            .collect();
        found.dedup();
        assert_eq!(found.len(), 1, "{key}: {found:?}");
    }
}

#[test]
#[ignore = "needs NATS: `make test-cluster`"]
fn a_chunk_whose_answer_was_lost_is_never_taken_back() {
    let nats = NatsServer::start().unwrap();
    let one = open(&nats, Duration::from_secs(6));
    let two = open(&nats, Duration::from_secs(6));
    let record = new_record(&one, "web1");
    one.admit(&record).unwrap();
    let mut writer = one.write(&one.log(&record.id), LOG, None).unwrap();
    let start = Some(sshjobs_output::Ring::new(RingLimits::default()).checkpoint());
    writer.append(&batch("one\n", start)).unwrap();
    let second = line("two\n");
    one.lose_next_answer();
    assert!(writer.append(&second).is_err());
    let before = one.newest_chunk(&record.id);

    writer.append(&second).unwrap();

    assert_eq!(one.newest_chunk(&record.id), before);
    writer.append(&line("three\n")).unwrap();
    for store in [&one, &two] {
        let log = store.log(&record.id);
        log.open(RingLimits::default()).unwrap();
        let recording = sshjobs_job::Archive::recording(&*log, None).unwrap();
        let bytes: Vec<u8> =
            recording.pieces.iter().flat_map(|piece| piece.bytes.to_vec()).collect();
        assert_eq!(bytes, b"one\ntwo\nthree\n");
    }
}

use std::path::PathBuf;

use super::*;
use crate::audit::{KnownHeads, Report, verify};

/// More bytes than any test writes.
const LARGE: u64 = 1 << 40;

struct Fixture {
    directory: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("audit.jsonl")
    }

    fn log_of(&self, longest: u64) -> AuditLog {
        let files = AuditFiles {
            log: self.file(),
            key: self.directory.path().join("keys/audit.key"),
        };
        AuditLog::new(files, longest).unwrap()
    }

    fn log(&self) -> AuditLog {
        self.log_of(LARGE)
    }

    /// Checks the chain.
    fn verify(&self) -> Report {
        verify(&self.file(), None, &KnownHeads::default()).unwrap()
    }

    fn text(&self) -> String {
        fs::read_to_string(self.file()).unwrap()
    }
}

fn event(number: u64) -> Event {
    Event::Started {
        decision: number,
        job: format!("web1-{number}"),
    }
}

fn append(log: &mut AuditLog, numbers: std::ops::Range<u64>) {
    for number in numbers {
        log.append(&[event(number)], false).unwrap();
    }
}

fn messages(report: &Report) -> Vec<&str> {
    report.faults.iter().map(|fault| fault.message.as_str()).collect()
}

#[test]
fn a_log_goes_on_where_another_process_has_ended() {
    let fixture = Fixture::new();
    let mut log = fixture.log();
    append(&mut log, 0..300);
    drop(log);

    let mut log = fixture.log();
    append(&mut log, 300..600);

    let report = fixture.verify();
    assert_eq!(messages(&report), [""; 0]);
    assert_eq!(report.head, Some(log.head()));
    // Each of the two has signed after 256 lines; a new process signs at once.
    assert_eq!(fixture.text().matches("checkpoint").count(), 3);
    assert_eq!(log.head().seq, 603);
}

#[test]
fn two_processes_write_one_log() {
    let fixture = Fixture::new();
    let logs = [fixture.log(), fixture.log(), fixture.log()];

    std::thread::scope(|scope| {
        for mut log in logs {
            scope.spawn(move || append(&mut log, 0..200));
        }
    });

    let report = fixture.verify();
    assert_eq!(messages(&report), [""; 0]);
    assert_eq!(fixture.text().matches("started").count(), 600);
}

#[test]
fn a_full_file_is_continued_in_a_new_one() {
    let fixture = Fixture::new();
    let mut log = fixture.log_of(10_000);
    append(&mut log, 0..500);
    drop(log);
    // Between a rotation and the next line there is no file.
    let files = rotated_files(&fixture.file()).unwrap();
    assert!(files.len() > 3, "{files:?}");

    let mut log = fixture.log_of(10_000);
    append(&mut log, 500..600);

    let report = fixture.verify();
    assert_eq!(messages(&report), [""; 0]);
    assert_eq!(report.first, 1);
    // Without the oldest file the rest still holds together, and says where it begins.
    let oldest = rotated_files(&fixture.file()).unwrap().into_iter().next().unwrap();
    fs::remove_file(oldest.1).unwrap();
    let report = fixture.verify();
    assert_eq!((report.first, report.faults.len()), (oldest.0 + 1, 0));
    // A file in the middle is missed.
    let second = rotated_files(&fixture.file()).unwrap().into_iter().nth(1).unwrap();
    fs::remove_file(second.1).unwrap();
    assert_eq!(fixture.verify().faults.len(), 1);
}

#[test]
fn half_a_line_of_a_killed_writer_is_cut_off_and_recorded() {
    let fixture = Fixture::new();
    let mut log = fixture.log();
    append(&mut log, 0..3);
    let whole = fixture.text();
    let lines: Vec<&str> = whole.lines().collect();
    let before_last = lines[0].len() + lines[1].len() + 2;

    for cut in before_last + 1..whole.len() {
        fs::write(fixture.file(), &whole.as_bytes()[..cut]).unwrap();
        assert_eq!(messages(&fixture.verify()), ["the line is cut off"]);

        let mut next = fixture.log();
        append(&mut next, 3..4);

        assert_eq!(messages(&fixture.verify()), [""; 0], "cut at {cut}");
        let cut_off = Event::Repaired {
            bytes: (cut - before_last) as u64,
        };
        let text = fixture.text();
        let repaired: StoredLine = serde_json::from_str(text.lines().nth(2).unwrap()).unwrap();
        assert_eq!(repaired.event, cut_off);
    }
}

#[test]
fn a_chain_goes_on_in_a_new_file_whose_first_line_was_cut_off() {
    let fixture = Fixture::new();
    let mut log = fixture.log_of(1000);
    append(&mut log, 0..20);
    drop(log);
    let newest = rotated_files(&fixture.file()).unwrap().into_keys().next_back().unwrap();
    fs::write(fixture.file(), format!("{{\"seq\":{},\"pr", newest + 1)).unwrap();

    let mut log = fixture.log_of(1000);
    append(&mut log, 20..21);

    assert_eq!(messages(&fixture.verify()), [""; 0]);
    assert!(log.head().seq > newest);
}

#[test]
fn no_file_is_overwritten_by_a_full_one() {
    let fixture = Fixture::new();
    let mut log = fixture.log_of(1000);
    append(&mut log, 0..6);
    let in_the_way = rotated_name(&fixture.file(), log.head().seq);
    fs::write(&in_the_way, "another file").unwrap();
    while fs::metadata(fixture.file()).is_ok_and(|file| file.len() < 1000) {
        append(&mut log, 6..7);
        fs::write(
            rotated_name(&fixture.file(), log.head().seq),
            "another file",
        )
        .unwrap();
    }

    log.append(&[event(7)], true).unwrap_err();

    assert_eq!(fs::read_to_string(in_the_way).unwrap(), "another file");
}

#[test]
fn characters_that_change_a_terminal_are_escaped_in_the_log() {
    let fixture = Fixture::new();
    let job = "a\nb\u{1b}[2J\u{9b}2J\u{202e}c é".to_owned();
    let event = Event::Started { decision: 1, job };

    fixture.log().append(std::slice::from_ref(&event), true).unwrap();

    let text = fixture.text();
    assert!(text.contains(r"a\nb\u001b[2J\u009b2J\u202ec é"), "{text}");
    let read: StoredLine = serde_json::from_str(text.trim()).unwrap();
    assert_eq!(read.event, event);
}

#[test]
fn a_file_that_is_no_audit_log_is_left_as_it_is() {
    for other in ["a line\n", "no line feed", "{\"seq\":1}\n"] {
        let fixture = Fixture::new();
        fs::write(fixture.file(), other).unwrap();

        fixture.log().append(&[event(1)], true).unwrap_err();

        assert_eq!(fixture.text(), other);
    }
}

#[test]
fn an_append_that_fails_leaves_no_trace() {
    let fixture = Fixture::new();
    let mut log = fixture.log();
    append(&mut log, 0..2);
    let before = (fixture.text(), log.head());
    // Its permissions don't keep root out, and a directory in its place does.
    let aside = fixture.directory.path().join("aside");
    fs::rename(fixture.file(), &aside).unwrap();
    fs::create_dir(fixture.file()).unwrap();

    log.append(&[event(2)], true).unwrap_err();

    fs::remove_dir(fixture.file()).unwrap();
    fs::rename(&aside, fixture.file()).unwrap();
    assert_eq!((fixture.text(), log.head()), before);
    append(&mut log, 2..3);
    assert_eq!(messages(&fixture.verify()), [""; 0]);
}

/// A log of a thousand lines, its text, and its last line.
fn thousand_lines() -> (Fixture, AuditLog, Vec<String>) {
    let fixture = Fixture::new();
    let mut log = fixture.log();
    while log.head().seq < 1000 {
        append(&mut log, 0..1);
    }
    let lines = fixture.text().lines().map(str::to_owned).collect();
    (fixture, log, lines)
}

/// Whether a check of all lines, changed in some way, finds anything.
fn finds(fixture: &Fixture, log: &AuditLog, lines: &[String], known: &[LogHead]) -> bool {
    let text: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
    fs::write(fixture.file(), text).unwrap();
    let mut required = KnownHeads::default();
    known.iter().for_each(|head| required.must_contain(*head));
    let report = verify(&fixture.file(), Some(log.key().public()), &required);
    !report.unwrap().faults.is_empty()
}

#[test]
fn a_removed_repeated_or_moved_line_is_found_wherever_it_is() {
    let (fixture, log, lines) = thousand_lines();
    assert!(!finds(&fixture, &log, &lines, &[log.head()]));
    // Every tenth, to save time, and those around the first checkpoint.
    let places = (0..lines.len()).filter(|place| place % 10 == 0 || place.abs_diff(256) < 4);
    for place in places {
        let mut removed = lines.clone();
        removed.remove(place);
        // The first line may be missing: the oldest files of a log may have been deleted.
        assert_eq!(
            finds(&fixture, &log, &removed, &[log.head()]),
            place > 0,
            "{place}"
        );

        let mut repeated = lines.clone();
        repeated.insert(place, lines[place].clone());
        assert!(finds(&fixture, &log, &repeated, &[]), "{place}");

        let mut moved = lines.clone();
        moved.swap(place, (place + 1) % lines.len());
        assert!(finds(&fixture, &log, &moved, &[]), "{place}");
    }
}

#[test]
fn a_tail_that_was_cut_off_is_found_by_a_head_that_is_known() {
    let (fixture, log, lines) = thousand_lines();

    for kept in [257, 600, 999] {
        assert!(
            !finds(&fixture, &log, &lines[..kept], &[]),
            "a chain alone can't show it"
        );
        assert!(
            finds(&fixture, &log, &lines[..kept], &[log.head()]),
            "{kept}"
        );
    }
}

#[test]
fn a_log_that_was_written_anew_is_found_by_the_key() {
    let (fixture, log, lines) = thousand_lines();
    let forger = Fixture::new();
    let mut forged = forger.log();
    while forged.head().seq < 1000 {
        append(&mut forged, 7..8);
    }
    let new: Vec<String> = forger.text().lines().map(str::to_owned).collect();

    assert!(
        finds(&fixture, &log, &new, &[]),
        "checkpoints of another key"
    );
    assert!(finds(&fixture, &forged, &lines, &[]));
    // Without the checkpoints, the chain is made anew, too.
    let mut head = LogHead::START;
    let unsigned = (0..1000).map(|number| {
        let (line, next) = head.append(&event(number), SystemTime::UNIX_EPOCH);
        head = next;
        line
    });
    let unsigned: Vec<String> = unsigned.collect();
    assert!(finds(&fixture, &log, &unsigned, &[]), "no checkpoints");
    // So is a short one, in which no checkpoint is due yet.
    assert!(
        finds(&fixture, &log, &unsigned[..10], &[]),
        "nothing is signed"
    );
}

#[test]
fn a_missing_log_is_an_error_of_a_check() {
    assert!(
        verify(
            Path::new("/nonexistent/audit.jsonl"),
            None,
            &KnownHeads::default()
        )
        .is_err()
    );
}

#[test]
fn pruning_is_stated_in_the_log_and_a_further_loss_is_a_fault() {
    let fixture = Fixture::new();
    let mut log = fixture.log_of(4000);
    append(&mut log, 1..100);
    let (begun, mut number) = (SystemTime::now(), 100);
    // Until later lines have a later time.
    while begun.elapsed().unwrap() < std::time::Duration::from_millis(20) || number < 200 {
        append(&mut log, number..number + 1);
        number += 1;
    }
    let full: Vec<PathBuf> = rotated_files(&fixture.file()).unwrap().into_values().collect();
    assert!(full.len() > 4, "{full:?}");
    assert_eq!(log.prune(SystemTime::UNIX_EPOCH).unwrap(), None);
    // The time of a file is that of its last line, whatever the file system says.
    let touched = File::options().write(true).open(&full[0]).unwrap();
    touched.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(
        log.prune(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(9)).unwrap(),
        None
    );
    let second = newest_line(&File::open(&full[1]).unwrap()).unwrap().unwrap();

    let pruned = log
        .prune(second.time.unwrap() + std::time::Duration::from_nanos(1))
        .unwrap()
        .unwrap();

    let count = pruned.files.len();
    assert!(count >= 2 && count < full.len(), "{pruned:?}");
    assert_eq!(pruned.files, full[..count]);
    assert!(full[..count].iter().all(|file| !file.exists()) && full[count].exists());
    let key = log.key().public();
    let report = verify(&fixture.file(), Some(key), &KnownHeads::default()).unwrap();
    assert_eq!(messages(&report), [""; 0]);
    assert_eq!(
        (report.first, report.pruned_to),
        (pruned.last.seq + 1, Some(pruned.last.seq))
    );
    assert_eq!(report.signed_to, report.head.map(|head| head.seq));

    // A line that was known before may be among those that were deleted.
    let mut known = KnownHeads::default();
    known.must_contain(pruned.last);
    let report = verify(&fixture.file(), Some(key), &known).unwrap();
    assert_eq!(messages(&report), [""; 0]);
    // With another key, the statement is not signed.
    let other = crate::audit::AuditKey::open(&fixture.directory.path().join("other")).unwrap();
    let report = verify(
        &fixture.file(),
        Some(other.public()),
        &KnownHeads::default(),
    )
    .unwrap();
    assert_eq!(report.pruned_to, None);

    fs::remove_file(&full[count]).unwrap();
    let report = fixture.verify();
    assert!(
        messages(&report).concat().contains("were deleted, and begins with line"),
        "{report:?}"
    );
}

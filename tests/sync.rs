//! `sshjobs sync`: a working tree of this machine on a host.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use sshjobs_core::jobs::{
    Exclusions, HostPath, Jobs, RemotePath, SyncOptions, SyncReport, TransferProgress,
};
use tokio::time::timeout;

use crate::support::command::{sshjobs, told};
use crate::support::{HOST, PATIENCE, Sshd};

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// All files and links below a directory, with their contents; not those of syncs themselves.
fn contents(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let below = path.strip_prefix(root).unwrap().to_owned();
            let metadata = path.symlink_metadata().unwrap();
            if below == Path::new(".sshjobs-sync") {
                continue;
            } else if metadata.is_dir() {
                directories.push(path);
            } else if metadata.is_symlink() {
                found.push((
                    below,
                    fs::read_link(path).unwrap().as_os_str().as_bytes().to_vec(),
                ));
            } else {
                found.push((below, fs::read(path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

fn sync_json(sshd: &Sshd, words: &[&str], here: &Path, far: &Path) -> Value {
    let here = here.display().to_string();
    let target = format!("{HOST}:{}", far.display());
    let words = [
        &["sync", "--json"],
        words,
        &[here.as_str(), target.as_str()],
    ]
    .concat();
    serde_json::from_str(&told(&sshjobs(sshd, &words))).unwrap()
}

async fn sync_to(jobs: &Jobs, here: &Path, far: &Path) -> SyncReport {
    let path = RemotePath::new(far.as_os_str().as_bytes().to_vec()).unwrap();
    let options = SyncOptions {
        exclusions: Exclusions::new(vec![]).unwrap(),
        dry_run: false,
    };
    let at = HostPath {
        host: HOST,
        path: &path,
    };
    let progress = Arc::new(TransferProgress::default());
    let synced = jobs.sync_to(here, at, &options, &progress);
    timeout(PATIENCE, synced).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_is_sent_once_and_then_only_what_has_changed() {
    let sshd = Sshd::start().await;
    let (here, far) = (sshd.path("here"), sshd.path("far"));
    for (path, text) in [
        ("src/main.rs", "fn main() {}"),
        ("src/deep/a/b.rs", "b"),
        ("run.sh", "#!/bin/sh\n"),
        ("old/gone.txt", "gone"),
        (".gitignore", "*.log\n"),
        ("x.log", "left out"),
        (".git/config", "private"),
    ] {
        write(&here, path, text);
    }
    fs::set_permissions(here.join("run.sh"), PermissionsExt::from_mode(0o755)).unwrap();
    symlink("src/main.rs", here.join("link")).unwrap();

    let dry = sync_json(&sshd, &["--dry-run"], &here, &far);
    assert_eq!(dry["change"], "dry_run", "{dry}");
    assert_eq!(dry["sent"].as_array().unwrap().len(), 6, "{dry}");
    assert!(!far.exists(), "a dry run does nothing");

    let first = sync_json(&sshd, &[], &here, &far);
    assert_eq!(first["sent"].as_array().unwrap().len(), 6, "{first}");
    assert_eq!(first["failed"].as_array().unwrap().len(), 0, "{first}");
    assert_eq!(first["hash"].as_str().unwrap().len(), 64);
    assert!(!far.join("x.log").exists() && !far.join(".git").exists());
    assert_eq!(
        fs::read_link(far.join("link")).unwrap(),
        Path::new("src/main.rs")
    );
    let mode = far.join("run.sh").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);

    let second = sync_json(&sshd, &[], &here, &far);
    assert_eq!(second["change"], "unchanged", "{second}");
    assert_eq!(second["unchanged"], 6, "{second}");
    assert_eq!(second["hash"], first["hash"]);

    // What the host has of its own stays, as does a sent file that was changed there.
    write(&far, "results/best.txt", "42");
    write(&far, "old/changed.txt", "by the host");
    write(&here, "old/changed.txt", "first");
    sync_json(&sshd, &[], &here, &far);
    fs::remove_dir_all(here.join("old")).unwrap();
    write(&far, "old/changed.txt", "by the host again");
    write(&here, "src/main.rs", "fn main() { }");
    let touched = fs::File::options().write(true).open(here.join("src/deep/a/b.rs")).unwrap();
    touched
        .set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000))
        .unwrap();
    fs::set_permissions(here.join("run.sh"), PermissionsExt::from_mode(0o700)).unwrap();

    let third = sync_json(&sshd, &[], &here, &far);
    assert_eq!(third["sent"], serde_json::json!(["src/main.rs"]), "{third}");
    assert_eq!(
        third["deleted"],
        serde_json::json!(["old/gone.txt"]),
        "{third}"
    );
    assert_eq!(
        third["kept"],
        serde_json::json!(["old/changed.txt"]),
        "{third}"
    );
    assert_ne!(third["hash"], first["hash"]);
    assert_eq!(
        fs::read_to_string(far.join("results/best.txt")).unwrap(),
        "42"
    );
    assert_eq!(
        fs::read_to_string(far.join("old/changed.txt")).unwrap(),
        "by the host again"
    );
    let mode = far.join("run.sh").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert_eq!(sync_json(&sshd, &[], &here, &far)["change"], "unchanged");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_link_leads_a_sync_out_of_either_tree() {
    let sshd = Sshd::start().await;
    let (here, far, outside) = (sshd.path("here"), sshd.path("far"), sshd.path("outside"));
    write(&outside, "private", "p");
    write(&here, "data/a", "a");
    write(&here, "b", "b");
    symlink(&outside, here.join("out")).unwrap();
    fs::create_dir(&far).unwrap();
    // The person of the host has put a link where the tree has a directory.
    symlink(&outside, far.join("data")).unwrap();

    let here_word = here.display().to_string();
    let target = format!("{HOST}:{}", far.display());
    let synced = sshjobs(&sshd, &["sync", &here_word, &target]);

    let error = String::from_utf8_lossy(&synced.stderr);
    assert_eq!(synced.status.code(), Some(1), "{error}");
    assert!(
        error.contains("a symbolic link that no sync has written"),
        "{error}"
    );
    assert_eq!(
        contents(&outside).len(),
        1,
        "nothing is written through the link"
    );
    assert_eq!(fs::read_link(far.join("out")).unwrap(), outside);
    assert_eq!(fs::read_to_string(far.join("b")).unwrap(), "b");

    // A link in the place of our own directory, too.
    fs::remove_file(far.join("data")).unwrap();
    symlink(&outside, far.join("elsewhere")).unwrap();
    fs::remove_dir_all(far.join(".sshjobs-sync")).unwrap();
    symlink(&outside, far.join(".sshjobs-sync")).unwrap();
    let synced = sshjobs(&sshd, &["sync", &here_word, &target]);
    assert_eq!(synced.status.code(), Some(1), "{synced:?}");
    assert_eq!(contents(&outside).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_any_bytes_arrive() {
    let sshd = Sshd::start().await;
    let (here, far) = (sshd.path("here"), sshd.path("far"));
    fs::create_dir(&here).unwrap();
    let names: [&[u8]; 9] = [
        b"-rf",
        b"a b",
        b"line\nend",
        b"\xff\xfe",
        b"quote'\"`$(x)",
        b"back\\slash",
        b"tab\there",
        b" ",
        b"*?[",
    ];
    for name in names {
        let name = std::ffi::OsStr::from_bytes(name);
        fs::write(here.join(name), "text").unwrap();
        let directory = here.join("directory").join(name);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(name), "below").unwrap();
    }

    let first = sync_to(&sshd.jobs(), &here, &far).await;
    assert!(first.failed.is_empty(), "{first:?}");
    assert_eq!(contents(&here), contents(&far));
    let second = sync_to(&sshd.jobs(), &here, &far).await;
    assert!(!second.has_changes(), "{second:?}");

    fs::remove_dir_all(here.join("directory")).unwrap();
    let third = sync_to(&sshd.jobs(), &here, &far).await;
    assert!(third.failed.is_empty(), "{third:?}");
    assert_eq!(contents(&here), contents(&far));
    assert!(!far.join("directory").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_that_is_cut_anywhere_continues() {
    let sshd = Sshd::start().await;
    let (here, far) = (sshd.path("here"), sshd.path("far"));
    for number in 0..120 {
        let text = format!("{number}\n").repeat(20_000);
        write(&here, &format!("d{}/f{number}", number % 7), &text);
    }
    let total: u64 = contents(&here).iter().map(|(_, content)| content.len() as u64).sum();
    let jobs = sshd.jobs();
    let mut saved = 0;
    for cut in 0..50_u64 {
        fs::remove_dir_all(&far).ok();
        let path = RemotePath::new(far.as_os_str().as_bytes().to_vec()).unwrap();
        let options = SyncOptions {
            exclusions: Exclusions::new(vec![]).unwrap(),
            dry_run: false,
        };
        let at = HostPath {
            host: HOST,
            path: &path,
        };
        let progress = Arc::new(TransferProgress::default());
        let offset = (cut * 7 % 50) * (total / 50);
        let cutting = async {
            while progress.bytes() < offset {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            sshd.cut();
        };
        let synced = jobs.sync_to(&here, at, &options, &progress);
        let (synced, ()) =
            timeout(PATIENCE, async { tokio::join!(synced, cutting) }).await.unwrap();
        let report = synced.unwrap();
        assert!(report.failed.is_empty(), "cut at {offset}: {report:?}");
        saved += u64::from(report.sent_bytes < total);
        assert!(contents(&here) == contents(&far), "cut at {offset}");
        let own: Vec<_> = fs::read_dir(far.join(".sshjobs-sync"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(own.len(), 2, "cut at {offset}: {own:?}");
    }
    assert!(saved > 10, "what has arrived is not sent again: {saved}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_that_changes_while_it_is_sent_is_never_half_there() {
    let sshd = Sshd::start().await;
    let (here, far) = (sshd.path("here"), sshd.path("far"));
    for number in 0..200 {
        write(&here, &format!("f{number}"), &"x".repeat(4096));
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let (changing, over) = (here.clone(), Arc::clone(&is_over));
    let writer = std::thread::spawn(move || {
        let mut round = 0_usize;
        while !over.load(Relaxed) {
            round += 1;
            let path = changing.join(format!("f{}", round % 200));
            // As an editor does: a file has one content or the other.
            let beside = changing.join("f.new");
            let letter = ["a", "b", "c"][round % 3];
            fs::write(&beside, letter.repeat(1000 + round % 5000)).unwrap();
            fs::rename(&beside, &path).unwrap();
            if round.is_multiple_of(50) {
                fs::remove_file(&path).unwrap();
            }
        }
    });
    for _ in 0..5 {
        sync_to(&sshd.jobs(), &here, &far).await;
        for (path, content) in contents(&far) {
            let first = content.first().copied().unwrap_or(b'x');
            assert!(
                content.iter().all(|byte| *byte == first),
                "{path:?} has two contents"
            );
        }
    }
    is_over.store(true, Relaxed);
    writer.join().unwrap();

    let last = sync_to(&sshd.jobs(), &here, &far).await;
    assert!(last.failed.is_empty(), "{last:?}");
    assert!(contents(&here) == contents(&far));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_changed_byte_of_a_large_file_sends_one_block() {
    let sshd = Sshd::start().await;
    let (here, far) = (sshd.path("here"), sshd.path("far"));
    fs::create_dir(&here).unwrap();
    let mut content: Vec<u8> = (0..41_000_000_u32).map(|n| (n * 7 / 5).to_le_bytes()[0]).collect();
    fs::write(here.join("model.bin"), &content).unwrap();
    let first = sync_to(&sshd.jobs(), &here, &far).await;
    assert_eq!(first.sent_bytes, 41_000_000, "{first:?}");

    content[20_000_000] ^= 1;
    fs::write(here.join("model.bin"), &content).unwrap();
    let second = sync_to(&sshd.jobs(), &here, &far).await;
    assert!(second.failed.is_empty(), "{second:?}");
    assert_eq!(second.sent_bytes, 4 << 20, "{second:?}");
    assert!(fs::read(far.join("model.bin")).unwrap() == content);

    // Shorter and longer.
    for length in [39_000_000, 45_000_000] {
        content.resize(length, 9);
        fs::write(here.join("model.bin"), &content).unwrap();
        let changed = sync_to(&sshd.jobs(), &here, &far).await;
        assert!(changed.failed.is_empty(), "{changed:?}");
        assert!(changed.sent_bytes < 12 << 20, "{changed:?}");
        assert!(fs::read(far.join("model.bin")).unwrap() == content);
    }
    let same = sync_to(&sshd.jobs(), &here, &far).await;
    assert!(!same.has_changes(), "{same:?}");
    let expected = Command::new("sha256sum").arg(here.join("model.bin")).output().unwrap();
    let found = Command::new("sha256sum").arg(far.join("model.bin")).output().unwrap();
    assert_eq!(&expected.stdout[..64], &found.stdout[..64]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_comes_back_and_only_what_has_changed() {
    let sshd = Sshd::start().await;
    let (here, far) = (sshd.path("here"), sshd.path("far"));
    for number in 0..50 {
        write(
            &far,
            &format!("d{}/f{number}", number % 3),
            &format!("{number}"),
        );
    }
    write(&far, "big.bin", &"b".repeat(9 << 20));
    write(&far, "skip.tmp", "left out");
    symlink("d1", far.join("link")).unwrap();
    fs::set_permissions(far.join("d1/f1"), PermissionsExt::from_mode(0o755)).unwrap();
    write(&here, "own.txt", "mine");
    let (here_word, source) = (
        here.display().to_string(),
        format!("{HOST}:{}", far.display()),
    );
    let back = |words: &[&str]| -> Value {
        let words = [
            &["sync", "--json", "--exclude", "*.tmp"],
            words,
            &[source.as_str(), here_word.as_str()],
        ];
        serde_json::from_str(&told(&sshjobs(&sshd, &words.concat()))).unwrap()
    };

    let dry = back(&["-n"]);
    assert_eq!(dry["sent"].as_array().unwrap().len(), 52, "{dry}");
    assert_eq!(fs::read_dir(&here).unwrap().count(), 1);
    let first = back(&[]);
    assert_eq!(first["sent"].as_array().unwrap().len(), 52, "{first}");
    assert!(!here.join("skip.tmp").exists());
    let mode = here.join("d1/f1").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    assert_eq!(back(&[])["change"], "unchanged");

    fs::remove_dir_all(far.join("d2")).unwrap();
    write(&far, "d0/f0", "changed");
    write(&here, "d1/mine", "stays");
    let third = back(&[]);
    assert_eq!(third["sent"], serde_json::json!(["d0/f0"]), "{third}");
    assert_eq!(third["deleted"].as_array().unwrap().len(), 17, "{third}");
    assert!(!here.join("d2").exists());
    fs::remove_file(far.join("skip.tmp")).unwrap();
    fs::remove_file(here.join("own.txt")).unwrap();
    fs::remove_file(here.join("d1/mine")).unwrap();
    assert!(contents(&here) == contents(&far));

    // Neither a link here nor one there leads out.
    let outside = sshd.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::remove_dir_all(here.join("d0")).unwrap();
    symlink(&outside, here.join("d0")).unwrap();
    let words = ["sync", source.as_str(), here_word.as_str()];
    let refused = sshjobs(&sshd, &words);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert_eq!(contents(&outside).len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_read_is_not_taken_for_gone() {
    let sshd = Sshd::start().await;
    let (here, far) = (sshd.path("here"), sshd.path("far"));
    for path in ["a/one", "b/two"] {
        write(&far, path, "text");
    }
    let (here_word, source) = (
        here.display().to_string(),
        format!("{HOST}:{}", far.display()),
    );
    told(&sshjobs(&sshd, &["sync", &source, &here_word]));
    if nix::unistd::geteuid().is_root() {
        // Root can list everything.
        return;
    }
    fs::set_permissions(far.join("a"), PermissionsExt::from_mode(0o0)).unwrap();
    sshjobs(&sshd, &["sync", &source, &here_word]);
    fs::set_permissions(far.join("a"), PermissionsExt::from_mode(0o755)).unwrap();
    assert!(here.join("a/one").exists());

    fs::set_permissions(here.join("b"), PermissionsExt::from_mode(0o0)).unwrap();
    sshjobs(&sshd, &["sync", &here_word, &source]);
    fs::set_permissions(here.join("b"), PermissionsExt::from_mode(0o755)).unwrap();
    assert!(far.join("b/two").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_cut_sync_has_left_here_gets_to_no_place() {
    let sshd = Sshd::start().await;
    let (here, far) = (sshd.path("here"), sshd.path("far"));
    for number in 0..60 {
        write(
            &far,
            &format!("d{}/f{number}", number % 5),
            &format!("{number}\n").repeat(20_000),
        );
    }
    write(&far, ".git/hooks/pre-commit", "#!/bin/sh\nexit 1\n");
    let jobs = sshd.jobs();
    let total: u64 = contents(&far).iter().map(|(_, content)| content.len() as u64).sum();
    for cut in 0..10_u64 {
        fs::remove_dir_all(&here).ok();
        let path = RemotePath::new(far.as_os_str().as_bytes().to_vec()).unwrap();
        let options = SyncOptions {
            exclusions: Exclusions::new(vec![]).unwrap(),
            dry_run: false,
        };
        let at = HostPath {
            host: HOST,
            path: &path,
        };
        let progress = Arc::new(TransferProgress::default());
        let cutting = async {
            while progress.bytes() < cut * (total / 11) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            sshd.cut();
        };
        let synced = jobs.sync_from(at, &here, &options, &progress);
        let (synced, ()) =
            timeout(PATIENCE, async { tokio::join!(synced, cutting) }).await.unwrap();
        let report = synced.unwrap();
        assert!(report.failed.is_empty(), "{report:?}");
        assert!(!here.join(".git").exists());
        fs::rename(far.join(".git"), sshd.path("kept.git")).unwrap();
        assert!(contents(&here) == contents(&far), "cut {cut}");
        fs::rename(sshd.path("kept.git"), far.join(".git")).unwrap();
        assert_eq!(fs::read_dir(here.join(".sshjobs-sync")).unwrap().count(), 2);
    }
}

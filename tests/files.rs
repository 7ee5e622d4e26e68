//! Files of hosts: read, written, edited and copied, whole or not at all.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::{HOST, McpClient, Sshd};
use serde_json::{Value, json};
use sshjobs_core::jobs::{
    Digest, Error, ExpectedContent, FileSource, FilesError, GetOptions, HostPath, Jobs, LocalFile,
    Put, PutOptions, RemotePath, TransferProgress, TreeOptions,
};
use tokio::time::timeout;

/// Time limit for one transfer.
const PATIENCE: Duration = Duration::from_secs(60);

fn remote(path: &Path) -> RemotePath {
    RemotePath::new(path.as_os_str().as_bytes().to_vec()).unwrap()
}

/// Names in a directory.
fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Bytes that do not repeat within a file.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(bytes).collect()
}

async fn put(jobs: &Jobs, path: &Path, content: FileSource) -> Result<Put, Error> {
    let options = PutOptions::default();
    let progress = TransferProgress::default();
    let path = HostPath {
        host: HOST,
        path: &remote(path),
    };
    let put = jobs.put_file(path, content, &options, &progress);
    timeout(PATIENCE, put).await.expect("a transfer ends")
}

async fn get(jobs: &Jobs, path: &Path, local: &Path) -> Result<sshjobs_core::jobs::Got, Error> {
    let progress = TransferProgress::default();
    let path = HostPath {
        host: HOST,
        path: &remote(path),
    };
    let got = jobs.get_file(path, local, GetOptions::default(), &progress);
    timeout(PATIENCE, got).await.expect("a transfer ends")
}

#[tokio::test]
async fn an_agent_reads_a_file_by_lines_by_bytes_and_from_its_end() {
    let sshd = Sshd::start().await;
    let file = sshd.path("app.log");
    let text: String = (1..=100).map(|n| format!("line {n}\n")).collect();
    std::fs::write(&file, &text).unwrap();
    let mut client = McpClient::start(&sshd.ssh_config());
    let mut get = |arguments: Value| {
        let mut all = json!({"host": HOST, "path": file});
        all.as_object_mut().unwrap().extend(arguments.as_object().unwrap().clone());
        client.ok("ssh_get", all)
    };

    let whole = get(json!({}));
    assert_eq!(whole["content"], text);
    assert_eq!(whole["sha256"], Digest::of(text.as_bytes()).to_string());
    assert_eq!(
        (&whole["kind"], &whole["size"], &whole["has_more"]),
        (&json!("file"), &json!(text.len()), &json!(false))
    );

    let middle = get(json!({"offset": 9, "length": 2}));
    assert_eq!(middle["content"], "line 10\nline 11\n");
    assert_eq!(
        (&middle["has_more"], &middle["sha256"]),
        (&json!(true), &Value::Null)
    );

    let end = get(json!({"offset": -2}));
    assert_eq!(
        (&end["content"], &end["offset"], &end["has_more"]),
        (&json!("line 99\nline 100\n"), &json!(98), &json!(false))
    );

    let bytes = get(json!({"unit": "bytes", "offset": 5, "length": 4, "encoding": "base64"}));
    assert_eq!(bytes["content"], "MQpsaQ==");
    let last = get(json!({"unit": "bytes", "offset": -4}));
    assert_eq!(last["content"], "100\n");

    // Parts of a reply that is too long lead to the next one, without a gap.
    let mut read = String::new();
    loop {
        let lines = read.lines().count();
        let part = get(json!({"offset": lines, "max_bytes": 100}));
        read += part["content"].as_str().unwrap();
        if part["has_more"] == false {
            break;
        }
    }
    assert_eq!(read, text);
}

#[tokio::test]
async fn an_agent_lists_directories_patterns_and_what_is_no_file() {
    let sshd = Sshd::start().await;
    let directory = sshd.path("dir");
    std::fs::create_dir_all(directory.join("sub")).unwrap();
    std::fs::write(directory.join("a.log"), "a").unwrap();
    std::fs::write(directory.join("b.log"), "bb").unwrap();
    symlink("/nowhere", directory.join("link")).unwrap();
    let mut client = McpClient::start(&sshd.ssh_config());
    let kinds = |reply: &Value| -> Vec<(String, String)> {
        let word = |value: &Value| value.as_str().unwrap().to_owned();
        let entries = reply["entries"].as_array().unwrap().iter();
        entries.map(|entry| (word(&entry["name"]), word(&entry["kind"]))).collect()
    };
    let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs
            .iter()
            .map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned()))
            .collect()
    };

    let listed = client.ok("ssh_get", json!({"host": HOST, "path": directory}));
    assert_eq!(listed["kind"], "directory");
    assert_eq!(
        kinds(&listed),
        pairs(&[
            ("a.log", "file"),
            ("b.log", "file"),
            ("link", "symlink"),
            ("sub", "directory")
        ])
    );

    let pattern = directory.join("*.log");
    let matched = client.ok("ssh_get", json!({"host": HOST, "path": pattern}));
    let path = |name: &str| directory.join(name).display().to_string();
    assert_eq!(
        kinds(&matched),
        pairs(&[(&path("a.log"), "file"), (&path("b.log"), "file")])
    );

    let missing = json!({"host": HOST, "path": directory.join("missing")});
    assert_eq!(client.code("ssh_get", missing), "no_such_file");
    assert_eq!(
        client.code("ssh_get", json!({"host": HOST, "path": "a\u{0}b"})),
        "invalid_argument"
    );
    let device = client.ok("ssh_get", json!({"host": HOST, "path": "/dev/null"}));
    assert_eq!(
        device["kind"], "other",
        "it is not read, which could take forever"
    );
}

#[tokio::test]
async fn a_write_tells_what_it_changed_and_keeps_the_mode() {
    let sshd = Sshd::start().await;
    let directory = sshd.path("etc");
    std::fs::create_dir(&directory).unwrap();
    let file = directory.join("app.conf");
    let mut client = McpClient::start(&sshd.ssh_config());

    let created = client.ok(
        "ssh_put",
        json!({"host": HOST, "path": file, "text": "a\nb\n"}),
    );
    assert_eq!(created["change"], "created");
    assert_eq!(created["sha256"], Digest::of(b"a\nb\n").to_string());
    assert_eq!(created["verified"], "sha256");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();

    let arguments = json!({"host": HOST, "path": file, "text": "a\nc\n", "backup": true});
    let changed = client.ok("ssh_put", arguments.clone());
    assert_eq!(changed["change"], "changed");
    let diff = changed["diff"].as_str().unwrap();
    assert!(diff.contains("-b\n+c\n"), "{diff}");
    assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o640);
    let backup = PathBuf::from(changed["backup"].as_str().unwrap());
    assert_eq!(std::fs::read_to_string(&backup).unwrap(), "a\nb\n");

    assert_eq!(client.ok("ssh_put", arguments)["change"], "unchanged");
    let all = names(&directory);
    assert_eq!(all.len(), 2, "the file and its copy: {all:?}");

    let deep = directory.join("x/y/new");
    let arguments = json!({"host": HOST, "path": deep, "base64": "AP8=", "mode": "0600"});
    assert_eq!(client.code("ssh_put", arguments.clone()), "no_such_file");
    let mut with_parents = arguments;
    with_parents["parents"] = json!(true);
    client.ok("ssh_put", with_parents);
    assert_eq!(std::fs::read(&deep).unwrap(), [0, 0xff]);
    assert_eq!(deep.metadata().unwrap().mode() & 0o7777, 0o600);

    // A link stays a link; the file behind it is written.
    let link = directory.join("link");
    symlink("app.conf", &link).unwrap();
    client.ok(
        "ssh_put",
        json!({"host": HOST, "path": link, "text": "through\n"}),
    );
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "through\n");

    let to_directory = json!({"host": HOST, "path": directory, "text": "x"});
    assert_eq!(client.code("ssh_put", to_directory), "invalid_argument");
    let nothing = json!({"host": HOST, "path": file});
    assert_eq!(client.code("ssh_put", nothing), "invalid_argument");
}

#[tokio::test]
async fn an_edit_replaces_exact_text_that_occurs_once() {
    let sshd = Sshd::start().await;
    let file = sshd.path("sshd_config.copy");
    std::fs::write(&file, "Port 22\nPermitRootLogin yes\nX yes\n").unwrap();
    let mut client = McpClient::start(&sshd.ssh_config());
    let edits = |edits: Value| json!({"host": HOST, "path": file, "edits": edits});

    let wrong = edits(json!([{"old": "PermitRootLogin  yes", "new": "PermitRootLogin no"}]));
    let refused = client.call("ssh_put", wrong).to_string();
    assert!(refused.contains("edit_not_found"), "{refused}");
    assert!(
        refused.contains("PermitRootLogin yes"),
        "it shows the nearest line: {refused}"
    );

    let twice = client.call("ssh_put", edits(json!([{"old": "yes", "new": "no"}]))).to_string();
    assert!(
        twice.contains("edit_not_unique") && twice.contains('2'),
        "{twice}"
    );
    assert!(
        std::fs::read_to_string(&file).unwrap().contains("Login yes"),
        "nothing was changed"
    );

    let both =
        json!([{"old": "Port 22", "new": "Port 2222"}, {"old": "Login yes", "new": "Login no"}]);
    let done = client.ok("ssh_put", edits(both));
    assert_eq!(done["change"], "changed");
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        "Port 2222\nPermitRootLogin no\nX yes\n"
    );

    let mut stale = edits(json!([{"old": "Port 2222", "new": "Port 22"}]));
    stale["if_sha256"] = json!(Digest::of(b"of another time").to_string());
    assert_eq!(client.code("ssh_put", stale), "changed_meanwhile");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_writers_that_expect_the_same_content_one_is_accepted() {
    let sshd = Sshd::start().await;
    let jobs = sshd.jobs();
    let file = sshd.path("counter");
    std::fs::write(&file, "0").unwrap();
    let path = remote(&file);
    for round in 0..5_u32 {
        let old = std::fs::read(&file).unwrap();
        let options = PutOptions {
            expected: ExpectedContent::Digest(Digest::of(&old)),
            ..PutOptions::default()
        };
        let write = async |writer: u32| {
            let content = FileSource::Memory(format!("{round} by {writer}").into());
            let progress = TransferProgress::default();
            let place = HostPath {
                host: HOST,
                path: &path,
            };
            jobs.put_file(place, content, &options, &progress).await
        };
        let writes = async { tokio::join!(write(1), write(2), write(3)) };
        let (one, two, three) = timeout(PATIENCE, writes).await.unwrap();
        let accepted = [&one, &two, &three].into_iter().filter(|put| put.is_ok()).count();
        assert_eq!(accepted, 1, "{one:?} {two:?} {three:?}");
        for refused in [one, two, three].into_iter().filter_map(Result::err) {
            let Error::Files(why) = &refused else { panic!("{refused}") };
            assert!(
                matches!(**why, FilesError::ChangedMeanwhile { .. }),
                "{refused}"
            );
        }
    }
    assert!(!names(sshd.path("").as_path()).iter().any(|name| name.contains("sshjobs-lock")));
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_of_the_same_content_do_not_disturb_each_other() {
    let sshd = Sshd::start().await;
    let jobs = sshd.jobs();
    let far = sshd.path("far");
    std::fs::create_dir(&far).unwrap();
    let target = far.join("file");
    let content = noise(4 << 20);
    for round in 0..3 {
        let puts = (0..8).map(|_| put(&jobs, &target, FileSource::Memory(content.clone().into())));
        for put in futures_util::future::join_all(puts).await {
            put.unwrap_or_else(|error| panic!("round {round}: {}", full_text(&error)));
        }
        assert!(std::fs::read(&target).unwrap() == content);
        assert_eq!(names(&far), ["file"], "round {round}");
        std::fs::remove_file(&target).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_that_is_cut_anywhere_continues_with_an_equal_hash() {
    let sshd = Sshd::start().await;
    let jobs = sshd.jobs();
    let content = noise(24 << 20);
    let local = sshd.path("local");
    std::fs::write(&local, &content).unwrap();
    let far = sshd.path("far");
    std::fs::create_dir(&far).unwrap();
    let mut resumed = 0;
    for cut in 0..50_u64 {
        let target = far.join("file");
        let back = sshd.path("back");
        std::fs::remove_file(&target).ok();
        std::fs::remove_file(&back).ok();
        let progress = TransferProgress::default();
        // Another offset each time, over the whole file.
        let offset = (cut * 7 % 50) * (content.len() as u64 / 50);
        let cutting = async {
            while progress.bytes() < offset {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            sshd.cut();
        };
        let path = remote(&target);
        let place = HostPath {
            host: HOST,
            path: &path,
        };
        if cut % 2 == 0 {
            let source = LocalFile::open(&local, std::fs::File::open(&local).unwrap()).unwrap();
            let options = PutOptions::default();
            let put = jobs.put_file(place, FileSource::File(source), &options, &progress);
            let (put, ()) = timeout(PATIENCE, async { tokio::join!(put, cutting) }).await.unwrap();
            resumed += u64::from(put.unwrap().resumed_from > 0);
            assert!(
                std::fs::read(&target).unwrap() == content,
                "sent, cut at {offset}"
            );
            assert_eq!(names(&far), ["file"], "cut at {offset}");
        } else {
            std::fs::write(&target, &content).unwrap();
            let got = jobs.get_file(place, &back, GetOptions::default(), &progress);
            let (got, ()) = timeout(PATIENCE, async { tokio::join!(got, cutting) }).await.unwrap();
            resumed += u64::from(got.unwrap().resumed_from > 0);
            assert!(
                std::fs::read(&back).unwrap() == content,
                "received, cut at {offset}"
            );
        }
    }
    assert!(
        resumed > 10,
        "transfers continue, and do not begin again: {resumed}"
    );
    assert!(!names(&sshd.path("")).iter().any(|name| name.contains(".part")));
}

#[tokio::test]
async fn a_part_with_other_bytes_is_not_continued() {
    let sshd = Sshd::start().await;
    let jobs = sshd.jobs();
    let far = sshd.path("far");
    std::fs::create_dir(&far).unwrap();
    let content = noise(1 << 20);
    let source = || FileSource::Memory(content.clone().into());
    let target = far.join("file");

    // A transfer into a directory that is removed under it leaves no trace; the name of a part is
    // found by stopping one.
    let stopped = timeout(Duration::from_millis(1), put(&jobs, &target, source())).await;
    drop(stopped);
    let parts: Vec<_> = names(&far).into_iter().filter(|name| name.ends_with(".part")).collect();
    for part in &parts {
        std::fs::write(
            far.join(part),
            noise(1000).iter().map(|byte| !byte).collect::<Vec<_>>(),
        )
        .unwrap();
    }
    let done = put(&jobs, &target, source()).await.unwrap();
    assert_eq!(done.resumed_from, 0);
    assert!(std::fs::read(&target).unwrap() == content);
    assert_eq!(names(&far), ["file"]);
}

#[tokio::test]
async fn a_file_of_more_than_four_gibibytes_is_read_at_any_place() {
    let sshd = Sshd::start().await;
    let file = sshd.path("sparse");
    let sparse = std::fs::File::create(&file).unwrap();
    let place = (4_u64 << 30) + 12345;
    sparse.write_all_at(b"needle", place).unwrap();
    let mut client = McpClient::start(&sshd.ssh_config());
    let found = client.ok(
        "ssh_get",
        json!({"host": HOST, "path": file, "unit": "bytes", "offset": place, "length": 100}),
    );
    assert_eq!(
        (&found["content"], &found["size"]),
        (&json!("needle"), &json!(place + 6))
    );
}

#[tokio::test]
async fn holes_stay_holes() {
    let sshd = Sshd::start().await;
    let jobs = sshd.jobs();
    let file = sshd.path("sparse");
    let sparse = std::fs::File::create(&file).unwrap();
    sparse.write_all_at(b"begin", 0).unwrap();
    sparse.write_all_at(b"end", 64 << 20).unwrap();
    let wanted = Digest::of(&std::fs::read(&file).unwrap());
    let up = sshd.path("up");
    let down = sshd.path("down");
    let source = LocalFile::open(&file, std::fs::File::open(&file).unwrap()).unwrap();
    assert_eq!(
        put(&jobs, &up, FileSource::File(source)).await.unwrap().digest,
        wanted
    );
    assert_eq!(get(&jobs, &up, &down).await.unwrap().digest, wanted);
    for copy in [up, down] {
        let metadata = copy.metadata().unwrap();
        assert_eq!(metadata.len(), (64 << 20) + 3);
        assert!(
            metadata.blocks() * 512 < 8 << 20,
            "{}: {}",
            copy.display(),
            metadata.blocks()
        );
    }
}

/// A directory with everything that is hard to copy.
fn make_tree(root: &Path) {
    std::fs::create_dir_all(root.join("empty")).unwrap();
    std::fs::create_dir_all(root.join("deep/er")).unwrap();
    std::fs::write(root.join(OsStr::from_bytes(b"new\nline")), "1").unwrap();
    std::fs::write(root.join(OsStr::from_bytes(b"latin\xe9")), "2").unwrap();
    std::fs::write(root.join(OsStr::from_bytes(b"-rf $(id) 'quoted'")), "3").unwrap();
    std::fs::write(root.join("deep/er/script"), "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(
        root.join("deep/er/script"),
        std::fs::Permissions::from_mode(0o751),
    )
    .unwrap();
    symlink("script", root.join("deep/er/link")).unwrap();
    symlink("/nowhere", root.join("dangling")).unwrap();
    for n in 0..200 {
        std::fs::write(root.join(format!("deep/file{n}")), format!("{n}\n")).unwrap();
    }
    let past = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let script = std::fs::File::open(root.join("deep/er/script")).unwrap();
    script.set_modified(past).unwrap();
}

/// Everything below a directory: path, kind, mode and content.
fn picture(root: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let content = if metadata.is_symlink() {
                format!("link to {}", path.read_link().unwrap().display())
            } else if metadata.is_dir() {
                directories.push(path.clone());
                format!("directory {:o}", metadata.mode())
            } else {
                let text = std::fs::read_to_string(&path).unwrap();
                format!("file {:o} {text}", metadata.mode())
            };
            found.push((path.strip_prefix(root).unwrap().to_owned(), content));
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn a_directory_goes_there_and_back_as_it_is() {
    for without_tar in [false, true] {
        let sshd = Sshd::start().await;
        let jobs = sshd.jobs();
        let (here, there, back) = (sshd.path("here"), sshd.path("there"), sshd.path("back"));
        make_tree(&here);
        let options = TreeOptions {
            preserve: true,
            without_tar,
        };
        let progress = std::sync::Arc::new(TransferProgress::default());
        let path = remote(&there);
        let place = HostPath {
            host: HOST,
            path: &path,
        };
        for round in 1..=2 {
            let put = jobs.put_tree(&here, place, options, &progress);
            let put = timeout(PATIENCE, put).await.unwrap().unwrap();
            assert!(put.failed.is_empty(), "{put:?}");
            assert_eq!(
                picture(&there),
                picture(&here),
                "round {round}, {without_tar}"
            );
        }
        let got = jobs.get_tree(place, &back, options, &progress);
        let got = timeout(PATIENCE, got).await.unwrap().unwrap();
        assert!(got.failed.is_empty(), "{got:?}");
        assert_eq!(picture(&back), picture(&here), "without tar: {without_tar}");
        let script = back.join("deep/er/script").metadata().unwrap();
        assert_eq!(script.mtime(), 1_000_000_000, "without tar: {without_tar}");
        assert!(!names(&sshd.path("")).iter().any(|name| name.contains("sshjobs-")));
    }
}

#[tokio::test]
async fn links_on_this_side_lead_no_file_out_of_its_directory() {
    let sshd = Sshd::start().await;
    let jobs = sshd.jobs();
    let (there, here, outside) = (sshd.path("there"), sshd.path("here"), sshd.path("outside"));
    std::fs::create_dir_all(there.join("sub")).unwrap();
    std::fs::write(there.join("sub/file"), "hostile").unwrap();
    std::fs::create_dir_all(&outside).unwrap();
    std::fs::create_dir_all(&here).unwrap();
    symlink(&outside, here.join("sub")).unwrap();
    for without_tar in [false, true] {
        let options = TreeOptions {
            preserve: false,
            without_tar,
        };
        let progress = std::sync::Arc::new(TransferProgress::default());
        let path = remote(&there);
        let place = HostPath {
            host: HOST,
            path: &path,
        };
        let got = jobs.get_tree(place, &here, options, &progress);
        let got = timeout(PATIENCE, got).await.unwrap();
        assert_eq!(
            names(&outside),
            [""; 0],
            "without tar: {without_tar}, {got:?}"
        );
    }
}

#[tokio::test]
async fn links_on_the_host_lead_no_copied_file_out_of_its_directory() {
    let sshd = Sshd::start().await;
    let jobs = sshd.jobs();
    let (here, there, outside) = (sshd.path("here"), sshd.path("there"), sshd.path("outside"));
    std::fs::create_dir_all(here.join("sub/deeper")).unwrap();
    std::fs::create_dir_all(&there).unwrap();
    for path in ["file", "sub/file", "sub/deeper/file"] {
        std::fs::write(here.join(path), "new").unwrap();
    }
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("kept"), "old").unwrap();
    for preserve in [false, true] {
        for (link, target) in [("sub", ""), ("file", "kept"), ("dangling", "new")] {
            std::fs::remove_dir_all(there.join(link))
                .or_else(|_| std::fs::remove_file(there.join(link)))
                .ok();
            symlink(outside.join(target), there.join(link)).unwrap();
        }
        std::fs::write(here.join("dangling"), "new").unwrap();
        let before = std::fs::metadata(&outside).unwrap();
        let options = TreeOptions {
            preserve,
            without_tar: false,
        };
        let progress = std::sync::Arc::new(TransferProgress::default());
        let path = remote(&there);
        let place = HostPath {
            host: HOST,
            path: &path,
        };
        let put = jobs.put_tree(&here, place, options, &progress);
        let put = timeout(PATIENCE, put).await.unwrap().unwrap();

        assert!(put.failed.is_empty(), "{put:?}");
        assert_eq!(names(&outside), ["kept"]);
        assert_eq!(
            std::fs::read_to_string(outside.join("kept")).unwrap(),
            "old"
        );
        let after = std::fs::metadata(&outside).unwrap();
        assert_eq!(
            (before.mode(), before.mtime()),
            (after.mode(), after.mtime())
        );
        for path in ["file", "dangling", "sub/file", "sub/deeper/file"] {
            assert_eq!(std::fs::read_to_string(there.join(path)).unwrap(), "new");
            assert!(!there.join(path).is_symlink(), "{path}");
        }
        assert!(!there.join("sub").is_symlink());
    }
}

#[tokio::test]
async fn a_link_in_the_place_of_a_copied_directory_is_replaced() {
    let sshd = Sshd::start().await;
    let jobs = sshd.jobs();
    let (there, outside) = (sshd.path("there"), sshd.path("outside"));
    std::fs::create_dir(&there).unwrap();
    std::fs::write(there.join("file"), "hostile").unwrap();
    std::fs::create_dir(&outside).unwrap();
    for without_tar in [false, true] {
        let here = sshd.path(&format!("here-{without_tar}"));
        symlink(&outside, &here).unwrap();
        let options = TreeOptions {
            preserve: false,
            without_tar,
        };
        let progress = std::sync::Arc::new(TransferProgress::default());
        let path = remote(&there);
        let place = HostPath {
            host: HOST,
            path: &path,
        };
        let got = jobs.get_tree(place, &here, options, &progress);
        timeout(PATIENCE, got).await.unwrap().unwrap();
        assert_eq!(names(&outside), [""; 0], "without tar: {without_tar}");
        assert_eq!(names(&here), ["file"], "without tar: {without_tar}");
        assert!(!here.is_symlink());
    }
}

/// Makes a directory deletable for its owner, with all entries below it, also after a test that fails.
struct Writable(PathBuf);

impl Drop for Writable {
    fn drop(&mut self) {
        let mut chmod = std::process::Command::new("chmod");
        chmod.args(["-R", "u+rwX"]).arg(&self.0).status().ok();
    }
}

#[tokio::test]
async fn directories_that_their_owner_can_not_change_are_copied() {
    for (preserve, without_tar) in [(false, false), (true, false), (true, true)] {
        let sshd = Sshd::start().await;
        let _deletable = Writable(sshd.path(""));
        let jobs = sshd.jobs();
        let (here, there, back) = (sshd.path("here"), sshd.path("there"), sshd.path("back"));
        for (directory, file) in [("a/b", "a/b/x"), ("a", "a/y"), ("c", "c/z")] {
            std::fs::create_dir_all(here.join(directory)).unwrap();
            std::fs::write(here.join(file), file).unwrap();
        }
        for directory in ["a/b", "a"] {
            let mode = std::fs::Permissions::from_mode(0o555);
            std::fs::set_permissions(here.join(directory), mode).unwrap();
        }
        let options = TreeOptions {
            preserve,
            without_tar,
        };
        let progress = std::sync::Arc::new(TransferProgress::default());
        let path = remote(&there);
        let place = HostPath {
            host: HOST,
            path: &path,
        };
        let put = jobs.put_tree(&here, place, options, &progress);
        let put = timeout(PATIENCE, put).await.unwrap().unwrap();
        assert!(put.failed.is_empty(), "{put:?}");
        assert_eq!(picture(&there), picture(&here), "{options:?}");
        // The second copy goes into the first, whose directories can't be changed either.
        let rounds = if without_tar { 1 } else { 2 };
        for _ in 0..rounds {
            let got = jobs.get_tree(place, &back, options, &progress);
            let got = timeout(PATIENCE, got).await.unwrap().unwrap();
            assert!(got.failed.is_empty(), "{got:?}");
            assert_eq!(picture(&back), picture(&here), "{options:?}");
        }
    }
}

#[tokio::test]
async fn a_copied_directory_loses_the_permissions_of_the_umask() {
    let sshd = Sshd::start().await;
    let (there, back, usual) = (sshd.path("there"), sshd.path("back"), sshd.path("usual"));
    for directory in [&there, &usual] {
        std::fs::create_dir_all(directory.join("d")).unwrap();
        std::fs::write(directory.join("d/f"), "text").unwrap();
    }
    for (entry, mode) in [("d/f", 0o666), ("d", 0o777), ("", 0o777)] {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(there.join(entry), mode).unwrap();
    }
    let path = remote(&there);
    let place = HostPath {
        host: HOST,
        path: &path,
    };
    let progress = std::sync::Arc::new(TransferProgress::default());
    let jobs = sshd.jobs();
    let got = jobs.get_tree(place, &back, TreeOptions::default(), &progress);
    timeout(PATIENCE, got).await.unwrap().unwrap();
    assert_eq!(picture(&back), picture(&usual));
    let mode = |path: &Path| path.metadata().unwrap().mode();
    assert_eq!(mode(&back), mode(&usual));
}

#[tokio::test]
async fn holes_of_files_in_a_directory_stay_holes() {
    let sshd = Sshd::start().await;
    let jobs = sshd.jobs();
    let (there, back) = (sshd.path("there"), sshd.path("back"));
    std::fs::create_dir(&there).unwrap();
    let sparse = std::fs::File::create(there.join("sparse")).unwrap();
    sparse.set_len(64 << 20).unwrap();
    sparse.write_all_at(b"end", (64 << 20) - 3).unwrap();
    let progress = std::sync::Arc::new(TransferProgress::default());
    let path = remote(&there);
    let place = HostPath {
        host: HOST,
        path: &path,
    };
    let got = jobs.get_tree(place, &back, TreeOptions::default(), &progress);
    let got = timeout(PATIENCE, got).await.unwrap().unwrap();
    assert_eq!(got.verified, 1, "{got:?}");
    let copied = back.join("sparse").metadata().unwrap();
    assert_eq!(copied.len(), 64 << 20);
    assert!(
        copied.blocks() * 512 < 1 << 20,
        "{} blocks",
        copied.blocks()
    );
}

#[tokio::test]
async fn a_server_that_lies_gets_no_file_past_us() {
    let far = noise(300_000);
    for mode in ["plain", "short", "reorder", "sizes"] {
        let sshd = Sshd::with(&subsystem(mode)).await;
        let jobs = sshd.jobs();
        let (there, back) = (sshd.path("there"), sshd.path("back"));
        std::fs::write(&there, &far).unwrap();
        get(&jobs, &there, &back)
            .await
            .unwrap_or_else(|error| panic!("{mode}: {error}"));
        assert!(std::fs::read(&back).unwrap() == far, "{mode}");
        let written = sshd.path("written");
        put(&jobs, &written, FileSource::Memory(far.clone().into())).await.unwrap();
        assert!(std::fs::read(&written).unwrap() == far, "{mode}");
    }
    for (mode, told) in [
        ("banner", "Welc"),
        ("long", "SFTP"),
        ("stranger", "SFTP protocol"),
    ] {
        let sshd = Sshd::with(&subsystem(mode)).await;
        let there = sshd.path("there");
        std::fs::write(&there, &far).unwrap();
        let back = sshd.path("back");
        let error = get(&sshd.jobs(), &there, &back).await.expect_err(mode);
        let error = full_text(&error);
        assert!(error.contains(told), "{mode}: {error}");
        assert!(!back.exists(), "{mode}");
    }
}

#[tokio::test]
async fn a_host_without_the_subsystem_or_without_tools_is_served_too() {
    // An sshd needs a subsystem in each of its lines; this is none that is asked for.
    let sshd = Sshd::prepared(
        "Subsystem other internal-sftp\nSetEnv PATH=DIR/few",
        |directory| {
            let few = directory.join("few");
            std::fs::create_dir(&few).unwrap();
            // Neither a tool for digests nor tar.
            for program in ["sh", "cat", "printf"] {
                symlink(Path::new("/bin").join(program), few.join(program)).unwrap();
            }
        },
    )
    .await;
    let jobs = sshd.jobs();
    let (here, there, back) = (sshd.path("here"), sshd.path("there"), sshd.path("back"));
    make_tree(&here);
    // More than the channel's window takes.
    std::fs::write(here.join("large"), vec![0x20; 8 << 20]).unwrap();
    let options = TreeOptions {
        preserve: true,
        without_tar: false,
    };
    let progress = std::sync::Arc::new(TransferProgress::default());
    let path = remote(&there);
    let place = HostPath {
        host: HOST,
        path: &path,
    };
    let put = jobs.put_tree(&here, place, options, &progress);
    timeout(PATIENCE, put).await.unwrap().unwrap();
    let got = jobs.get_tree(place, &back, options, &progress);
    timeout(PATIENCE, got).await.unwrap().unwrap();
    assert_eq!(picture(&back), picture(&here));

    let file = sshd.path("file");
    let written = put_text(&jobs, &file, "read back").await;
    assert_eq!(
        written.verified,
        sshjobs_core::jobs::Verified::ByReadingBack
    );
}

async fn put_text(jobs: &Jobs, path: &Path, text: &'static str) -> Put {
    put(jobs, path, FileSource::Memory(text.into())).await.unwrap()
}

/// An error with its causes.
fn full_text(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn subsystem(mode: &str) -> String {
    let proxy = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/sftp-proxy");
    format!("Subsystem sftp {} {mode}", proxy.display())
}

#[tokio::test]
async fn a_server_that_invents_names_or_never_answers_is_given_up() {
    let sshd = Sshd::with(&subsystem("names")).await;
    let there = sshd.path("there");
    std::fs::create_dir(&there).unwrap();
    std::fs::write(there.join("file"), "x").unwrap();
    let mut client = McpClient::start(&sshd.ssh_config());
    let refused = client.call("ssh_get", json!({"host": HOST, "path": there})).to_string();
    assert!(
        refused.contains("\"isError\":true") && refused.contains("a/../../b"),
        "{refused}"
    );

    let sshd = Sshd::with(&subsystem("silent")).await;
    sshd.append("  ConnectTimeout 1\n");
    let began = std::time::Instant::now();
    let mut client = McpClient::start(&sshd.ssh_config());
    let arguments = json!({"host": HOST, "path": "/etc/hostname"});
    assert_eq!(client.code("ssh_get", arguments), "timeout");
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn local_paths_are_offered_below_the_configured_roots_only() {
    let sshd = Sshd::start().await;
    let (root, outside) = (sshd.path("root"), sshd.path("outside"));
    std::fs::create_dir_all(&root).unwrap();
    std::fs::create_dir_all(&outside).unwrap();
    std::fs::write(root.join("in"), "content").unwrap();
    std::fs::write(outside.join("secret"), "secret").unwrap();
    symlink(outside.join("secret"), root.join("link")).unwrap();
    symlink(&outside, root.join("way")).unwrap();
    let config = sshd.path("config.toml");
    std::fs::write(
        &config,
        format!("transfer_roots = [{:?}]\n", root.display().to_string()),
    )
    .unwrap();

    let mut closed = McpClient::start(&sshd.ssh_config());
    let from = |path: &Path| json!({"host": HOST, "path": sshd.path("there"), "from": path});
    assert_eq!(
        closed.code("ssh_put", from(&root.join("in"))),
        "policy_denied"
    );

    let mut client = McpClient::start_with(&sshd.ssh_config(), &config);
    client.ok("ssh_put", from(&root.join("in")));
    assert_eq!(
        std::fs::read_to_string(sshd.path("there")).unwrap(),
        "content"
    );
    for path in ["link", "way/secret", "../outside/secret"] {
        assert_eq!(
            client.code("ssh_put", from(&root.join(path))),
            "policy_denied",
            "{path}"
        );
    }
    assert_eq!(
        client.code("ssh_put", from(&outside.join("secret"))),
        "policy_denied"
    );

    let to = |path: &Path| json!({"host": HOST, "path": sshd.path("there"), "to": path});
    client.ok("ssh_get", to(&root.join("out")));
    assert_eq!(
        std::fs::read_to_string(root.join("out")).unwrap(),
        "content"
    );
    for path in ["way/new", "../outside/new"] {
        assert_eq!(
            client.code("ssh_get", to(&root.join(path))),
            "policy_denied",
            "{path}"
        );
    }
    assert_eq!(names(&outside), ["secret"]);
}

#[tokio::test]
async fn many_hosts_are_written_at_once_with_one_summary() {
    let sshd = Sshd::start().await;
    sshd.alias(["web2", "web3"]);
    sshd.append("Host web4\n  HostName 127.0.0.1\n  Port 1\n");
    let mut client = McpClient::start(&sshd.ssh_config());
    let file = sshd.path("fleet.conf");
    let reply = client.ok(
        "ssh_put",
        json!({"hosts": ["web[2-4]"], "path": file, "text": "all\n"}),
    );
    let groups = reply["groups"].as_array().unwrap();
    let failed = groups.last().unwrap();
    assert_eq!(
        (&failed["hosts"], &failed["count"]),
        (&json!("web4"), &json!(1)),
        "{reply}"
    );
    let written: u64 = groups[..groups.len() - 1]
        .iter()
        .map(|group| group["count"].as_u64().unwrap())
        .sum();
    assert_eq!(written, 2, "{reply}");
    assert_eq!(reply["failed"], true);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "all\n");
}

#[test]
fn sftp_itself_can_use_the_server_in_shell() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let content: Vec<u8> = (0..200_003_u32).map(|n| (n % 251) as u8).collect();
    std::fs::write(path("local"), &content).unwrap();
    let batch = "mkdir d\nput local \"d/a 'name'\"\nchmod 600 \"d/a 'name'\"\nsymlink a d/link\n\
                 rename \"d/a 'name'\" d/b\nget d/b back\nln d/b d/c\nrm d/c\nls -a d\n";
    std::fs::write(path("batch"), batch).unwrap();
    let server = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/crates/core/src/files/sftp_server.sh"
    );
    for shell in ["sh", "bash"] {
        std::fs::remove_dir_all(path("d")).ok();
        let ran = std::process::Command::new("sftp")
            .args(["-D", &format!("{shell} {server}"), "-b", "batch"])
            .current_dir(directory.path())
            .output()
            .unwrap();
        let stdout = String::from_utf8_lossy(&ran.stdout);
        assert!(
            ran.status.success(),
            "{shell}: {stdout}{}",
            String::from_utf8_lossy(&ran.stderr)
        );
        assert_eq!(std::fs::read(path("back")).unwrap(), content, "{shell}");
        let mode = std::fs::metadata(path("d/b")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{shell}");
        for name in ["b", "link"] {
            assert!(stdout.contains(&format!("d/{name}")), "{shell}: {stdout}");
        }
        assert!(!path("d/c").exists());
    }
}

#[tokio::test]
async fn a_link_to_no_file_stays_and_its_target_is_made() {
    let sshd = Sshd::start().await;
    let jobs = sshd.jobs();
    symlink("between", sshd.path("link")).unwrap();
    symlink(sshd.path("real"), sshd.path("between")).unwrap();

    let put = put_text(&jobs, &sshd.path("link"), "content").await;

    assert_eq!(put.change, sshjobs_core::jobs::FileChange::Created);
    assert_eq!(
        std::fs::read_link(sshd.path("link")).unwrap(),
        Path::new("between")
    );
    assert_eq!(
        std::fs::read_to_string(sshd.path("real")).unwrap(),
        "content"
    );
}

#[tokio::test]
async fn backups_of_one_second_are_all_kept() {
    let sshd = Sshd::start().await;
    let jobs = sshd.jobs();
    let file = sshd.path("backed-up");
    std::fs::write(&file, "one").unwrap();
    let options = PutOptions {
        backup: true,
        ..PutOptions::default()
    };
    let mut kept = Vec::new();
    for text in ["two", "three", "four"] {
        // As if all were written in the same second.
        let time = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        std::fs::File::open(&file).unwrap().set_modified(time).unwrap();
        let path = remote(&file);
        let place = HostPath {
            host: HOST,
            path: &path,
        };
        let content = FileSource::Memory(text.into());
        let put = jobs
            .put_file(place, content, &options, &TransferProgress::default())
            .await
            .unwrap();
        let backup = put.backup.unwrap().to_string();
        kept.push(std::fs::read_to_string(backup).unwrap());
    }
    assert_eq!(kept, ["one", "two", "three"]);
}

#[tokio::test]
async fn a_slow_stream_is_sent_as_it_comes() {
    let sshd = Sshd::start().await;
    let jobs = sshd.jobs();
    let (mut near, far) = tokio::io::duplex(1 << 20);
    let target = sshd.path("streamed");
    let putting = tokio::spawn({
        let target = target.clone();
        async move { put(&jobs, &target, FileSource::Stream(Box::pin(far))).await }
    });

    tokio::io::AsyncWriteExt::write_all(&mut near, &noise(700_000)).await.unwrap();

    crate::support::eventually("the first bytes are there", async || {
        let parts = std::fs::read_dir(sshd.path("")).unwrap().flatten();
        parts
            .filter(|entry| entry.file_name().to_string_lossy().contains(".sshjobs-"))
            .any(|entry| entry.metadata().is_ok_and(|metadata| metadata.len() > 0))
    })
    .await;
    drop(near);
    assert_eq!(putting.await.unwrap().unwrap().size, 700_000);
    assert_eq!(std::fs::read(&target).unwrap(), noise(700_000));
}

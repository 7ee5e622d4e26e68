//! `sshjobs put`, `get` and `edit`, and the programs that read the same files.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::support::command::{command, sshjobs, told};
use crate::support::relay::Relay;
use crate::support::server::Server;
use crate::support::{HOST, PATIENCE, Sshd, eventually, exit_of};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// `web1:PATH`.
fn there(path: &Path) -> String {
    format!("{HOST}:{}", path.display())
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_ones_own_does_not_keep_files_from_being_copied() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let socket = server.socket.display().to_string();
    let (here, far) = (sshd.path("here"), sshd.path("far"));
    std::fs::write(&here, "1\n").unwrap();
    let words = ["put", &here.display().to_string(), &there(&far)];
    let put =
        |address: &str| command(&sshd, &words).env("SSHJOBS_SERVER", address).output().unwrap();

    told(&put(&socket));

    assert_eq!(text(&far), "1\n");
    assert_eq!(put("http://127.0.0.1:1").status.code(), Some(2));
    let named = sshjobs(
        &sshd,
        &[&["--server", socket.as_str()], &words[..]].concat(),
    );
    assert_eq!(named.status.code(), Some(2));
}

#[tokio::test]
async fn files_go_to_a_host_and_back_by_scps_words() {
    let sshd = Sshd::start().await;
    let (one, two, far) = (sshd.path("one"), sshd.path("two"), sshd.path("far"));
    std::fs::write(&one, "1\n").unwrap();
    std::fs::write(&two, "2\n").unwrap();
    std::fs::create_dir(&far).unwrap();
    let word = |path: &Path| path.display().to_string();

    let output = told(&sshjobs(
        &sshd,
        &["put", &word(&one), &word(&two), &there(&far)],
    ));
    assert_eq!(output.lines().count(), 2, "one line per file: {output}");
    assert_eq!(
        (text(&far.join("one")), text(&far.join("two"))),
        ("1\n".into(), "2\n".into())
    );

    let back = sshd.path("back/");
    told(&sshjobs(
        &sshd,
        &["get", &there(&far.join("*")), &word(&back)],
    ));
    assert_eq!(text(&back.join("two")), "2\n");

    let renamed = there(&far.join("renamed"));
    let json = told(&sshjobs(&sshd, &["put", "--json", &word(&one), &renamed]));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["change"], &json["size"]),
        (&"created".into(), &2.into()),
        "{json}"
    );

    let missing = sshjobs(&sshd, &["get", &there(&far.join("missing")), &word(&back)]);
    assert_eq!(missing.status.code(), Some(1));
    let said = String::from_utf8_lossy(&missing.stderr);
    assert!(said.contains("no such file"), "{said}");
    let no_host = sshjobs(&sshd, &["put", &word(&one), &word(&two)]);
    assert_eq!(no_host.status.code(), Some(2));
}

#[tokio::test]
async fn stdin_and_stdout_are_files() {
    let sshd = Sshd::start().await;
    let far = sshd.path("far");
    let mut put = command(&sshd, &["put", "-", &there(&far)])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    put.stdin.take().unwrap().write_all(b"piped\n").unwrap();
    assert!(put.wait().unwrap().success());
    assert_eq!(text(&far), "piped\n");
    assert_eq!(
        told(&sshjobs(&sshd, &["get", &there(&far), "-"])),
        "piped\n"
    );
}

#[tokio::test]
async fn options_for_files_are_refused_with_a_directory() {
    let sshd = Sshd::start().await;
    let tree = sshd.path("tree");
    std::fs::create_dir(&tree).unwrap();
    let tree = tree.display().to_string();
    let target = there(&sshd.path("copy"));
    for options in [&["--mode", "600"][..], &["--backup"], &["--in-place"]] {
        let put = sshjobs(
            &sshd,
            &[&["put", "-r"], options, &[&tree, &target]].concat(),
        );
        let said = String::from_utf8_lossy(&put.stderr);
        assert_eq!(put.status.code(), Some(2), "{said}");
        assert!(said.contains("a source is a directory"), "{said}");
        assert!(!sshd.path("copy").exists());
    }
}

#[tokio::test]
async fn a_large_directory_is_refused_at_once_if_the_host_can_not_take_it() {
    let sshd = Sshd::start().await;
    let large = sshd.path("large");
    std::fs::create_dir(&large).unwrap();
    // More than the channel's window takes.
    std::fs::write(large.join("file"), vec![0x20; 8 << 20]).unwrap();

    let large = large.display().to_string();
    std::fs::write(sshd.path("file"), "").unwrap();
    let target = there(&sshd.path("file/directory"));
    let put = sshjobs(&sshd, &["put", "-r", &large, &target]);
    let said = String::from_utf8_lossy(&put.stderr);
    assert_eq!(put.status.code(), Some(1), "{said}");
    assert!(said.contains("Not a directory"), "{said}");

    let target = there(&sshd.path("missing/directory"));
    for source in [&large, &format!("{large}/file")] {
        let put = sshjobs(&sshd, &["put", "-r", source, &target]);
        let said = String::from_utf8_lossy(&put.stderr);
        assert_eq!(put.status.code(), Some(1), "{said}");
        assert!(said.contains("--parents"), "{said}");
    }

    told(&sshjobs(
        &sshd,
        &["put", "-r", "--parents", &large, &target],
    ));
    let copied = sshd.path("missing/directory/file").metadata().unwrap();
    assert_eq!(copied.len(), 8 << 20);
}

#[tokio::test]
async fn a_directory_is_copied_while_one_of_its_files_grows() {
    let sshd = Sshd::start().await;
    let logs = sshd.path("logs");
    std::fs::create_dir(&logs).unwrap();
    std::fs::write(logs.join("other"), "other\n").unwrap();
    let log = logs.join("log");
    std::fs::write(&log, vec![0x20; 4 << 20]).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let writing = std::thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            let mut log = std::fs::OpenOptions::new().append(true).open(&log).unwrap();
            while !is_over.load(Relaxed) {
                log.write_all(b"line\n").unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });

    let copied = sshd.path("copied");
    let put = sshjobs(
        &sshd,
        &["put", "-r", &logs.display().to_string(), &there(&copied)],
    );
    is_over.store(true, Relaxed);
    writing.join().unwrap();

    assert!(put.status.success(), "{put:?}");
    assert_eq!(text(&copied.join("other")), "other\n");
    assert!(copied.join("log").metadata().unwrap().len() >= 4 << 20);
}

#[tokio::test]
async fn a_directory_is_copied_while_a_file_that_was_sent_changes() {
    let sshd = Sshd::start().await;
    let site = sshd.path("site");
    std::fs::create_dir(&site).unwrap();
    std::fs::write(site.join("a"), "old\n").unwrap();
    std::fs::write(site.join("b"), vec![0x20; 64 << 20]).unwrap();
    let copied = sshd.path("copied");
    let parent = copied.parent().unwrap().to_owned();
    let writing = std::thread::spawn({
        let first = site.join("a");
        move || {
            let is_part = |name: String| name.starts_with(".copied.sshjobs-");
            let has_arrived = || {
                parent.read_dir().unwrap().flatten().any(|entry| {
                    is_part(entry.file_name().display().to_string())
                        && entry.path().join("b").exists()
                })
            };
            let deadline = Instant::now() + PATIENCE;
            while !has_arrived() {
                assert!(Instant::now() < deadline, "nothing was sent");
                std::thread::sleep(Duration::from_millis(1));
            }
            std::fs::write(first, "new\n").unwrap();
        }
    });

    let put = sshjobs(
        &sshd,
        &["put", "-r", &site.display().to_string(), &there(&copied)],
    );
    writing.join().unwrap();

    assert!(put.status.success(), "{put:?}");
    assert_eq!(text(&copied.join("a")), "new\n");
    assert_eq!(copied.join("b").metadata().unwrap().len(), 64 << 20);
}

#[tokio::test]
async fn directories_need_a_word_and_are_read_back_by_other_programs() {
    let sshd = Sshd::start().await;
    let site = sshd.path("site");
    std::fs::create_dir_all(site.join("css")).unwrap();
    std::fs::write(site.join("index.html"), "<p>").unwrap();
    std::fs::write(site.join("css/a b.css"), "p {}").unwrap();
    let far = sshd.path("far");
    let site_word = site.display().to_string();
    assert_eq!(
        sshjobs(&sshd, &["put", &site_word, &there(&far)]).status.code(),
        Some(2)
    );
    told(&sshjobs(&sshd, &["put", "-r", &site_word, &there(&far)]));

    let config = sshd.ssh_config().display().to_string();
    let scp = sshd.path("by-scp");
    let rsync = sshd.path("by-rsync");
    let copy = |program: &str, arguments: &[&str], target: &Path| {
        let output = Command::new(program).args(arguments).arg(target).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{program}: {said}");
        assert_eq!(text(&target.join("css/a b.css")), "p {}", "{program}");
    };
    copy("scp", &["-qrF", &config, &there(&far)], &scp);
    let far_slash = there(&far) + "/";
    copy(
        "rsync",
        &["-re", &format!("ssh -F {config}"), &far_slash],
        &rsync,
    );

    let batch = sshd.path("batch");
    let fetched = sshd.path("by-sftp");
    std::fs::write(
        &batch,
        format!("get {}/index.html {}\n", far.display(), fetched.display()),
    )
    .unwrap();
    let sftp = Command::new("sftp").args(["-qF", &config, "-b"]).arg(&batch).arg(HOST).output();
    assert!(sftp.unwrap().status.success());
    assert_eq!(text(&fetched), "<p>");
}

#[tokio::test]
async fn many_hosts_get_a_file_and_each_returns_its_own() {
    let sshd = Sshd::start().await;
    sshd.alias(["web2", "web3"]);
    sshd.append("Host gone\n  HostName 127.0.0.1\n  Port 1\n");
    let file = sshd.path("app.conf");
    std::fs::write(&file, "all\n").unwrap();
    let far = sshd.path("far");
    let log = sshd.path("joblog");
    let junit = sshd.path("junit.xml");
    let target = format!("web[1-3],gone:{}", far.display());
    let arguments = ["put", &file.display().to_string(), &target, "-j", "2"];
    let logs = [
        "--joblog",
        &log.display().to_string(),
        "--junit",
        &junit.display().to_string(),
    ];
    let put = sshjobs(&sshd, &[&arguments[..], &logs[..]].concat());
    assert_eq!(
        put.status.code(),
        Some(1),
        "the number of hosts that failed"
    );
    let said = String::from_utf8_lossy(&put.stderr);
    assert!(said.contains("4 hosts: 3 ok, 1 failed: gone"), "{said}");
    assert_eq!(text(&log).lines().count(), 5, "a title and a line per host");
    let report = text(&junit);
    assert!(
        report.contains("tests=\"4\"") && report.contains("failures=\"1\""),
        "{report}"
    );

    let local = sshd.path("logs");
    let source = format!("web*:{}", far.display());
    told(&sshjobs(
        &sshd,
        &["get", &source, &local.display().to_string()],
    ));
    for host in ["web1", "web2", "web3"] {
        assert_eq!(text(&local.join(host).join("far")), "all\n");
    }
}

#[tokio::test]
async fn a_link_to_a_directory_that_matches_a_pattern_is_copied_as_a_link() {
    let sshd = Sshd::start().await;
    let (far, back) = (sshd.path("far"), sshd.path("back"));
    std::fs::create_dir_all(far.join("release")).unwrap();
    std::fs::write(far.join("release/file"), "1").unwrap();
    std::os::unix::fs::symlink("release", far.join("current")).unwrap();

    let words = [
        "get",
        "-r",
        &there(&far.join("*")),
        &back.display().to_string(),
    ];
    told(&sshjobs(&sshd, &words));

    assert_eq!(text(&back.join("release/file")), "1");
    let link = std::fs::read_link(back.join("current")).unwrap();
    assert_eq!(link, Path::new("release"));
}

/// An editor that replaces `old` by `new`, and does `meanwhile` first.
fn editor(sshd: &Sshd, meanwhile: &str) -> String {
    let script = sshd.path("editor");
    let text = format!("#!/bin/sh\n{meanwhile}\nsed -i s/old/new/ \"$1\"\n");
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    script.display().to_string()
}

#[tokio::test]
async fn an_edited_file_is_written_back_unless_somebody_was_faster() {
    let sshd = Sshd::start().await;
    let file = sshd.path("conf");
    std::fs::write(&file, "old\n").unwrap();
    let edit = |meanwhile: &str| {
        let output = command(&sshd, &["edit", &there(&file)])
            .env("VISUAL", editor(&sshd, meanwhile))
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    assert_eq!(edit("").0, Some(0));
    assert_eq!(text(&file), "new\n");

    std::fs::write(&file, "old\n").unwrap();
    let (code, said) = edit(&format!("echo theirs > {}", file.display()));
    assert_eq!(
        (code, text(&file).as_str()),
        (Some(1), "theirs\n"),
        "{said}"
    );
    assert!(said.contains("was changed meanwhile"), "{said}");
    let (_, kept) = said.split_once("your text is kept in ").expect("it says where");
    let (kept, _) = kept.split_once(';').unwrap();
    assert_eq!(text(Path::new(kept)), "new\n", "{said}");

    std::fs::write(&file, "old\n").unwrap();
    let (code, said) = edit("exit 3");
    assert_eq!((code, text(&file).as_str()), (Some(1), "old\n"), "{said}");
    assert!(said.contains("nothing was saved"), "{said}");
}

#[tokio::test]
async fn an_editor_is_stopped_by_term_and_only_its_work_is_kept() {
    let sshd = Sshd::start().await;
    let file = sshd.path("conf");
    std::fs::write(&file, "old\n").unwrap();
    let temporary = sshd.path("temporary");
    std::fs::create_dir(&temporary).unwrap();
    let entries =
        |directory: &Path| std::fs::read_dir(directory).unwrap().flatten().collect::<Vec<_>>();
    // The second editor saves unsaved text beside the file, as nano and vim do.
    for (on_term, kept) in [
        ("exit 1", &[][..]),
        ("echo new > \"$1.save\"; exit 1", &["conf", "conf.save"]),
    ] {
        let pid_file = sshd.path("pid");
        std::fs::remove_file(&pid_file).ok();
        let script = format!(
            "trap '{on_term}' TERM; echo $$ > {0}.new; mv {0}.new {0}; while :; do sleep 0.05; done",
            pid_file.display()
        );
        let mut edit = command(&sshd, &["edit", &there(&file)])
            .env(
                "VISUAL",
                format!("WITH=variable {}", editor(&sshd, &script)),
            )
            .env("TMPDIR", &temporary)
            .spawn()
            .unwrap();
        eventually("the editor runs", async || pid_file.exists()).await;
        let editor = Pid::from_raw(text(&pid_file).trim().parse().unwrap());
        let copies = entries(&temporary);
        assert_eq!(
            copies[0].metadata().unwrap().permissions().mode() & 0o777,
            0o700
        );

        kill(Pid::from_raw(edit.id().cast_signed()), Signal::SIGTERM).unwrap();

        assert_eq!(exit_of(&mut edit).await, Some(143));
        assert!(kill(editor, None).is_err(), "the editor still runs");
        let mut names: Vec<String> = entries(&temporary)
            .iter()
            .flat_map(|directory| entries(&directory.path()))
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, kept);
        assert_eq!(text(&file), "old\n");
    }
}

#[tokio::test]
async fn an_edit_is_interrupted_while_its_host_hangs_and_the_text_is_kept() {
    let sshd = Sshd::start().await;
    let relay = Relay::before(&sshd, Duration::ZERO);
    let file = sshd.path("conf");
    std::fs::write(
        &file, "old
",
    )
    .unwrap();
    let (pid_file, go_on) = (sshd.path("pid"), sshd.path("go-on"));
    let script = format!(
        "echo $$ > {0}.new; mv {0}.new {0}; while [ ! -e {1} ]; do sleep 0.05; done",
        pid_file.display(),
        go_on.display()
    );
    let mut edit = command(&sshd, &["edit", &there(&file)])
        .env("VISUAL", editor(&sshd, &script))
        .env("TMPDIR", sshd.path(""))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("the editor runs", async || pid_file.exists()).await;
    let editor = Pid::from_raw(text(&pid_file).trim().parse().unwrap());
    relay.freeze(true);
    std::fs::write(&go_on, "").unwrap();
    eventually("the editor has ended", async || kill(editor, None).is_err()).await;

    kill(Pid::from_raw(edit.id().cast_signed()), Signal::SIGTERM).unwrap();

    assert_eq!(exit_of(&mut edit).await, Some(143));
    let mut said = String::new();
    edit.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let (_, kept) = said.split_once("your text is kept in ").expect("it says where");
    let (kept, _) = kept.split_once(';').unwrap();
    assert_eq!(
        text(Path::new(kept)),
        "new
",
        "{said}"
    );
    assert_eq!(
        text(&file),
        "old
"
    );
}

#[tokio::test]
async fn an_interrupted_copy_exits_as_after_the_signal() {
    let sshd = Sshd::start().await;
    let far = sshd.path("far");
    let mut put = command(&sshd, &["put", "-", &there(&far)])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let _open = put.stdin.take();
    let has_begun = || {
        let names = std::fs::read_dir(far.parent().unwrap()).unwrap();
        names.flatten().any(|entry| entry.file_name().to_string_lossy().contains("far"))
    };
    eventually("the copy has begun", async || has_begun()).await;

    kill(Pid::from_raw(put.id().cast_signed()), Signal::SIGINT).unwrap();

    assert_eq!(exit_of(&mut put).await, Some(130));
    assert!(!far.exists());
}

#[tokio::test]
async fn a_server_with_room_for_one_session_takes_and_gives_directories() {
    let sshd = Sshd::with("MaxSessions 1\n").await;
    let site = sshd.path("site");
    std::fs::create_dir(&site).unwrap();
    std::fs::write(site.join("index.html"), "<p>").unwrap();
    let (far, back) = (sshd.path("far"), sshd.path("back"));

    let put = sshjobs(
        &sshd,
        &["put", "-r", &site.display().to_string(), &there(&far)],
    );
    assert!(put.status.success(), "{put:?}");
    let got = sshjobs(
        &sshd,
        &["get", "-r", &there(&far), &back.display().to_string()],
    );
    assert!(got.status.success(), "{got:?}");

    assert_eq!(text(&far.join("index.html")), "<p>");
    assert_eq!(text(&back.join("index.html")), "<p>");
}

#[tokio::test]
async fn a_match_that_can_not_be_read_keeps_no_other_back() {
    let sshd = Sshd::start().await;
    let logs = sshd.path("logs");
    std::fs::create_dir(&logs).unwrap();
    for name in ["a", "c"] {
        std::fs::write(logs.join(name), name).unwrap();
    }
    // Directories need -r.
    std::fs::create_dir(logs.join("b")).unwrap();
    std::fs::create_dir(logs.join("d")).unwrap();
    let here = sshd.path("here");
    std::fs::create_dir(&here).unwrap();

    let got = sshjobs(
        &sshd,
        &[
            "get",
            &format!("{}/*", there(&logs)),
            &here.display().to_string(),
        ],
    );

    assert!(!got.status.success(), "{got:?}");
    assert_eq!(
        (text(&here.join("a")), text(&here.join("c"))),
        ("a".into(), "c".into())
    );
    let words = String::from_utf8_lossy(&got.stderr).into_owned();
    assert!(
        words.contains("logs/b") && words.contains("logs/d"),
        "{words}"
    );
}

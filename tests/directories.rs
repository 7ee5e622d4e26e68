//! Directories that tools copy: from and to this machine, and between hosts, never through the model.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};

use crate::support::server::Server;
use crate::support::{HOST, McpClient, Sshd};

/// Another name of the same host.
const OTHER: &str = "other";

/// A tree with a program, an empty directory, an awkward name and a link that leads out of it.
fn make_tree(root: &Path) {
    std::fs::create_dir_all(root.join("deep/empty")).unwrap();
    std::fs::write(root.join("run.sh"), "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(root.join("run.sh"), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(root.join("deep/a 'b'\n\u{fc}"), "content").unwrap();
    symlink("/etc/passwd", root.join("link")).unwrap();
}

/// Checks a copy of the tree.
fn assert_tree(root: &Path) {
    let content = std::fs::read_to_string(root.join("deep/a 'b'\n\u{fc}"));
    assert_eq!(content.unwrap(), "content");
    assert!(root.join("deep/empty").is_dir());
    let mode = std::fs::metadata(root.join("run.sh")).unwrap().permissions().mode();
    assert_eq!(mode & 0o100, 0o100, "{mode:o}");
    assert_eq!(
        std::fs::read_link(root.join("link")).unwrap(),
        Path::new("/etc/passwd")
    );
}

/// A client whose server may copy below a directory.
struct Rooted {
    client: McpClient,
    root: PathBuf,
}

impl Rooted {
    fn new(sshd: &Sshd) -> Self {
        let root = sshd.path("root");
        std::fs::create_dir_all(&root).unwrap();
        let config = sshd.path("config.toml");
        std::fs::write(&config, format!("transfer_roots = [{root:?}]\n")).unwrap();
        let client = McpClient::start_with(&sshd.ssh_config(), &config);
        Self { client, root }
    }
}

#[tokio::test]
async fn a_directory_is_copied_from_and_to_a_transfer_root() {
    let sshd = Sshd::start().await;
    let Rooted { mut client, root } = Rooted::new(&sshd);
    make_tree(&root.join("tree"));
    let there = sshd.path("new/there");
    let put = json!({"host": HOST, "from": root.join("tree"), "path": there, "recursive": true});

    assert_eq!(client.code("ssh_put", put.clone()), "no_such_file");
    let mut with_parents = put.clone();
    with_parents["parents"] = json!(true);
    let first = client.ok("ssh_put", with_parents);
    assert_tree(&there);
    assert_eq!(
        (&first["tree"]["written"], &first["change"]),
        (&json!(2), &Value::Null)
    );
    let again = client.ok("ssh_put", put);
    assert_eq!(again["failed"], Value::Null, "{again}");
    assert_tree(&there);

    let got = client.ok(
        "ssh_get",
        json!({"host": HOST, "path": there, "to": root.join("back")}),
    );
    assert_eq!(
        (&got["kind"], &got["tree"]["written"]),
        (&json!("directory"), &json!(2))
    );
    assert_tree(&root.join("back"));
}

#[tokio::test]
async fn the_whole_root_can_be_copied() {
    let sshd = Sshd::start().await;
    let Rooted { mut client, root } = Rooted::new(&sshd);
    make_tree(&root);
    let there = sshd.path("there");
    client.ok(
        "ssh_put",
        json!({"host": HOST, "from": root, "path": there, "recursive": true}),
    );
    assert_tree(&there);
}

#[tokio::test]
async fn a_path_that_leads_out_of_the_root_is_no_directory_to_copy() {
    let sshd = Sshd::start().await;
    let Rooted { mut client, root } = Rooted::new(&sshd);
    let outside = sshd.path("outside");
    make_tree(&outside);
    symlink(&outside, root.join("way")).unwrap();
    std::fs::create_dir(root.join("inside")).unwrap();
    for from in ["way", "way/deep", "../outside"] {
        let put = json!({"host": HOST, "from": root.join(from), "path": sshd.path("there"),
            "recursive": true});
        assert_eq!(client.code("ssh_put", put), "policy_denied", "{from}");
    }
    for to in ["way/new", "../outside/new"] {
        let get = json!({"host": HOST, "path": root.join("inside"), "to": root.join(to)});
        assert_eq!(client.code("ssh_get", get), "policy_denied", "{to}");
    }
    assert!(!sshd.path("there").exists() && !outside.join("new").exists());
}

#[tokio::test]
async fn files_and_directories_are_copied_between_hosts_without_transfer_roots() {
    let sshd = Sshd::start().await;
    sshd.alias([OTHER]);
    let tree = sshd.path("tree");
    make_tree(&tree);
    let mut client = McpClient::start(&sshd.ssh_config());
    let there = sshd.path("there");
    let from = format!("{HOST}:{}", tree.display());
    let put = client.ok(
        "ssh_put",
        json!({"host": OTHER, "from": from, "path": there, "recursive": true}),
    );
    assert_eq!(put["tree"]["written"], 2);
    assert_tree(&there);

    let file = format!("{HOST}:{}", tree.join("run.sh").display());
    let put = client.ok(
        "ssh_put",
        json!({"hosts": [HOST, OTHER], "from": file, "path": sshd.path("copy.sh")}),
    );
    assert_eq!(put["groups"][0]["count"], 2, "{put}");
    let copied = std::fs::read_to_string(sshd.path("copy.sh")).unwrap();
    assert_eq!(copied, "#!/bin/sh\n");

    let home = std::env::home_dir().unwrap();
    let below_home = tempfile::tempdir_in(&home).unwrap();
    std::fs::write(below_home.path().join("file"), "x").unwrap();
    let name = below_home.path().file_name().unwrap().to_str().unwrap();
    let from_home = json!({"host": OTHER, "from": format!("{HOST}:~/{name}/file"),
        "path": format!("~/{name}/copy")});
    client.ok("ssh_put", from_home);
    assert!(below_home.path().join("copy").exists());
    let found = client.ok(
        "ssh_search",
        json!({"host": HOST, "path": format!("~/{name}"), "pattern": "x"}),
    );
    assert_eq!(found["matches"].as_array().unwrap().len(), 2);

    for (from, code) in [
        (from, "invalid_argument"),
        (format!("{HOST}:/no/such"), "no_such_file"),
        ("nowhere:/etc".to_owned(), "unknown_host"),
        ("/etc/hostname".to_owned(), "policy_denied"),
    ] {
        let put = json!({"host": OTHER, "from": from, "path": sshd.path("x")});
        assert_eq!(client.code("ssh_put", put), code, "{from}");
    }
}

#[tokio::test]
async fn arguments_for_files_are_refused_with_a_directory() {
    let sshd = Sshd::start().await;
    let mut client = McpClient::start(&sshd.ssh_config());
    for (name, value) in [
        ("mode", json!("0644")),
        ("backup", json!(true)),
        ("in_place", json!(true)),
        ("text", json!("content")),
    ] {
        let mut put = json!({"host": HOST, "from": format!("{HOST}:/etc"), "path": sshd.path("x"),
            "recursive": true});
        put[name] = value;
        assert_eq!(client.code("ssh_put", put), "invalid_argument", "{name}");
    }
}

#[tokio::test]
async fn a_policy_decides_on_both_sides_of_a_copy_between_hosts() {
    let sshd = Sshd::start().await;
    sshd.alias([OTHER]);
    let policy = sshd.path("policy.toml");
    let rules = format!(
        "[[rules]]\nname = \"read one\"\nverbs = [\"get\"]\nhosts = [\"{OTHER}\"]\n\n\
         [[rules]]\nname = \"write the other\"\nverbs = [\"put\"]\nhosts = [\"{HOST}\"]\n"
    );
    std::fs::write(&policy, rules).unwrap();
    let config = sshd.path("config.toml");
    std::fs::write(&config, format!("[policy]\nfile = {policy:?}\n")).unwrap();
    let mut client = McpClient::start_with(&sshd.ssh_config(), &config);
    std::fs::write(sshd.path("file"), "x").unwrap();
    let mut copy = |from: &str, host: &str| {
        let from = format!("{from}:{}", sshd.path("file").display());
        let to = sshd.path("copy");
        client
            .call("ssh_put", json!({"host": host, "from": from, "path": to}))
            .to_string()
    };
    assert!(copy(HOST, HOST).contains("policy_denied"));
    assert!(copy(OTHER, OTHER).contains("policy_denied"));
    let allowed = copy(OTHER, HOST);
    assert!(!allowed.contains("\"isError\":true"), "{allowed}");
}

#[tokio::test]
async fn a_copy_between_hosts_keeps_modes_names_what_is_missing_and_leaves_nothing() {
    let sshd = Sshd::start().await;
    sshd.alias([OTHER]);
    let tree = sshd.path("tree");
    std::fs::create_dir_all(tree.join("closed")).unwrap();
    std::fs::write(tree.join("closed/file"), "x").unwrap();
    std::fs::write(tree.join("key"), "secret").unwrap();
    std::fs::set_permissions(tree.join("key"), PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::set_permissions(tree.join("closed"), PermissionsExt::from_mode(0o555)).unwrap();
    assert!(Command::new("mkfifo").arg(tree.join("pipe")).status().unwrap().success());
    let temporary = sshd.path("temporary");
    std::fs::create_dir(&temporary).unwrap();
    let left = temporary.join("sshjobs-copy-999999999-left");
    std::fs::create_dir(&left).unwrap();

    let server = Server::in_environment(&sshd, "127.0.0.1:0", &[], &[("TMPDIR", &temporary)]);
    let caller = server.caller(&sshd, "agent", &[]);
    let from = |path: &Path| format!("{HOST}:{}", path.display());
    let put = caller.ok(
        "put",
        json!({"host": OTHER, "from": from(&tree), "path": sshd.path("there"), "recursive": true}),
    );
    assert!(
        put["tree"]["skipped"][0].as_str().unwrap().ends_with("pipe"),
        "{put}"
    );
    let mode_of = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode_of(&sshd.path("there/key")), 0o600);
    assert_eq!(mode_of(&sshd.path("there/closed")), 0o555);

    let copy = sshd.path("key-alone");
    caller.ok(
        "put",
        json!({"host": OTHER, "from": from(&tree.join("key")), "path": copy}),
    );
    assert_eq!(mode_of(&copy), 0o600);
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
}

/// Exchanges a directory for a link in a loop, until it is dropped.
struct Exchanging {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Exchanging {
    fn start(directory: PathBuf, link: PathBuf) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let mut exchanged = 0;
            while !over.load(Ordering::Relaxed) {
                let flags = RenameFlags::EXCHANGE;
                exchanged += u64::from(renameat_with(CWD, &directory, CWD, &link, flags).is_ok());
            }
            exchanged
        });
        Self {
            is_over,
            thread: Some(thread),
        }
    }

    /// Stops. Returns how often they were exchanged.
    fn stop(mut self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Exchanging {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_directory_that_becomes_a_link_meanwhile_leads_nothing_out_of_the_root() {
    let sshd = Sshd::start().await;
    let Rooted { mut client, root } = Rooted::new(&sshd);
    let outside = sshd.path("outside");
    std::fs::create_dir(&outside).unwrap();
    let tree = sshd.path("tree");
    for n in 0..10 {
        std::fs::create_dir_all(tree.join("below")).unwrap();
        std::fs::write(tree.join(format!("file{n}")), "x").unwrap();
        std::fs::write(tree.join(format!("below/file{n}")), "x").unwrap();
    }
    for exchanged in ["target", "target/below"] {
        let directory = root.join(exchanged);
        std::fs::create_dir_all(&directory).unwrap();
        let link = root.join("link");
        symlink(&outside, &link).unwrap();
        let exchanging = Exchanging::start(directory.clone(), link.clone());
        for _ in 0..20 {
            // It may fail, but not write elsewhere.
            client.call(
                "ssh_get",
                json!({"host": HOST, "path": tree, "to": root.join("target")}),
            );
        }
        assert!(exchanging.stop() > 20);
        assert_eq!(
            std::fs::read_dir(&outside).unwrap().count(),
            0,
            "{exchanged}"
        );
        for path in [link, directory] {
            if path.is_symlink() {
                std::fs::remove_file(path).unwrap();
            } else if path.exists() {
                std::fs::remove_dir_all(path).unwrap();
            }
        }
    }
}

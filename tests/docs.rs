//! What the documentation shows works as it stands.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

mod support;

use std::process::Command;

use support::Sshd;
use support::server::Server;

/// The blocks of a page that are shell scripts.
fn scripts(page: &str) -> Vec<&str> {
    page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_curl_examples_of_the_server_run_as_they_stand() {
    let sshd = Sshd::start().await;
    let server = Server::start(&sshd);
    let caller = server.caller(&sshd, "reader-of-the-docs", &[]);
    let scripts = scripts(include_str!("../docs/server.md"));
    assert_eq!(scripts.len(), 1);
    let output = Command::new("sh")
        .args(["-eu", "-c", scripts[0]])
        .current_dir(sshd.path(""))
        .env("URL", &server.url)
        .env("TOKEN", &caller.token)
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}{}", String::from_utf8_lossy(&output.stderr));
    assert!(shown.contains("\"Linux\"") && shown.contains("\"text\":\"line 3\""), "{shown}");
    assert_eq!(
        shown.matches("\"text\":\"line 1\"").count(),
        1,
        "the second stream begins behind line 2: {shown}"
    );
    assert_eq!(shown.matches("event: end").count(), 2);
    assert!(shown.contains("line{\"jobs\"") && shown.contains("\"exit_status\":3"), "{shown}");
    assert_eq!(std::fs::read_to_string(sshd.path("out.bin")).unwrap(), "line 1\nline 2\nline 3\n");
}

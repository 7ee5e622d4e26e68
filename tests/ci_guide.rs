//! The scripts of docs/ci.md run as they stand. The one that needs containers runs in
//! tests/fleet.rs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::guide::{PAGE, run, run_steps};
use crate::support::Sshd;
use serde_json::Value;

/// A checkout with the page's ssh_config, whose names lead to a private sshd.
fn checkout(sshd: &Sshd) -> PathBuf {
    let place = sshd.path("checkout");
    std::fs::create_dir_all(place.join("ci")).unwrap();
    let config = PAGE.split("```text\n").nth(1).unwrap().split("```").next().unwrap();
    let config = config
        .replace("web1.example.com", "127.0.0.1")
        .replace("web2.example.com", "127.0.0.1");
    let user = nix::unistd::User::from_uid(nix::unistd::getuid()).unwrap().unwrap().name;
    let config = config.replace(
        "User deploy",
        &format!("User {user}\n  Port {}", sshd.port()),
    );
    std::fs::write(place.join("ci/ssh_config"), config).unwrap();
    place
}

fn file(sshd: &Sshd, name: &str) -> String {
    std::fs::read_to_string(sshd.path(name)).unwrap()
}

fn assert_rolled_out(place: &std::path::Path, printed: &str) {
    assert!(
        printed.contains("web1 | Linux") && printed.contains("web2 | Linux"),
        "{printed}"
    );
    let junit = std::fs::read_to_string(place.join("results.xml")).unwrap();
    assert!(
        junit.contains("tests=\"2\"") && junit.contains("failures=\"0\""),
        "{junit}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_workflow_for_github_reaches_its_hosts_and_rolls_out() {
    let sshd = Sshd::start().await;
    let (place, key, known) = (
        checkout(&sshd),
        file(&sshd, "id"),
        file(&sshd, "known_hosts"),
    );
    // GitHub's secrets have no end of line.
    let secrets = [
        ("SSH_KEY", key.trim_end()),
        ("SSH_KNOWN_HOSTS", known.trim_end()),
    ];
    let printed = run_steps(&crate::guide::workflow("rollout"), (&place, &secrets));
    assert_rolled_out(&place, &printed);
    let joblog = std::fs::read_to_string(place.join("joblog")).unwrap();
    assert_eq!(joblog.lines().count(), 3, "{joblog}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pipeline_for_gitlab_reaches_its_hosts_and_rolls_out() {
    let sshd = Sshd::start().await;
    let place = checkout(&sshd);
    let block = PAGE
        .split("## GitLab")
        .nth(1)
        .unwrap()
        .split("```yaml\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let job = serde_saphyr::from_str::<Value>(block).unwrap()["rollout"].take();
    let lines = [&job["before_script"], &job["script"]]
        .into_iter()
        .filter_map(Value::as_array)
        .flatten();
    let script = lines.map(|line| line.as_str().unwrap()).collect::<Vec<_>>().join("\n");
    let workspace = place.display().to_string();
    let variables = job["variables"]["SSH_DIR"]
        .as_str()
        .unwrap()
        .replace("$CI_PROJECT_DIR", &workspace);
    let env = BTreeMap::from([
        ("SSH_DIR", variables),
        ("SSH_KEY", sshd.path("id").display().to_string()),
        (
            "SSH_KNOWN_HOSTS",
            sshd.path("known_hosts").display().to_string(),
        ),
    ]);
    assert_rolled_out(&place, &run(&script, &place, &env));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_with_another_key_fails_the_rollout_and_says_so() {
    let sshd = Sshd::start().await;
    sshd.trust("other");
    let (place, key, known) = (
        checkout(&sshd),
        file(&sshd, "id"),
        file(&sshd, "known_hosts"),
    );
    let mut job = crate::guide::workflow("rollout");
    let steps = job["steps"].as_array_mut().unwrap();
    steps.retain(|step| step["name"] != "Reach the hosts");
    let roll_out = steps.iter_mut().find(|step| step["name"] == "Roll out").unwrap();
    // One host as canary fails, so both have not ended well.
    roll_out["run"] = format!(
        "status=0; {} || status=$?; test $status = 2",
        roll_out["run"].as_str().unwrap().trim_end().replace("exec ", "")
    )
    .into();
    run_steps(
        &job,
        (
            &place,
            &[
                ("SSH_KEY", key.trim_end()),
                ("SSH_KNOWN_HOSTS", known.trim_end()),
            ],
        ),
    );
    let junit = std::fs::read_to_string(place.join("results.xml")).unwrap();
    assert!(junit.contains("has changed"), "{junit}");
}

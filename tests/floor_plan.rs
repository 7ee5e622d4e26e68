//! The house keeps its floors: imports point down, a foreign crate stays at home, no folder is off the plan.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;
use std::path::Path;

use regex::Regex;

/// Each folder and what it may see besides itself.
const PLAN: [(&str, &[&str]); 7] = [
    ("output", &[]),
    ("job", &["output"]),
    ("ssh", &[]),
    ("runner", &["job", "ssh", "output"]),
    ("api", &["runner", "job", "ssh", "output"]),
    ("mcp", &["api"]),
    ("cli", &["api"]),
];

/// Foreign crates that have one home.
const HOMES: [(&str, &str); 3] = [("russh", "ssh"), ("rmcp", "mcp"), ("clap", "cli")];

/// What the pure floor must do without.
const IMPURE: [&str; 7] =
    ["tokio", "std::time", "std::sync", "std::fs", "std::io", "std::net", "std::thread"];

/// What is wrong with a file at `path` below `src`.
fn violations(path: &str, text: &str) -> Vec<String> {
    let code: String =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let folder = path.split_once('/').map_or("", |(folder, _)| folder);
    let mut found = Vec::new();
    if let Some((_, below)) = PLAN.iter().find(|(name, _)| *name == folder) {
        let inward = Regex::new(r"\bcrate::(?:\{\s*)?(\w+)").unwrap();
        for seen in inward.captures_iter(&code).map(|found| found[1].to_owned()) {
            if seen != folder && !below.contains(&seen.as_str()) {
                found.push(format!("{path}: {folder} must not see {seen}"));
            }
        }
    } else if !folder.is_empty() {
        found.push(format!("{path}: there is no {folder} on the plan"));
    }
    for (name, home) in HOMES {
        if folder != home && Regex::new(&format!(r"\b{name}\b")).unwrap().is_match(&code) {
            found.push(format!("{path}: {name} lives in {home}"));
        }
    }
    let is_test = path.ends_with("tests.rs");
    if folder == "output" && !is_test {
        let impure = IMPURE.into_iter().filter(|word| code.contains(word));
        found.extend(impure.map(|word| format!("{path}: output is pure, without {word}")));
    }
    found
}

fn files(root: &Path, folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(root, &path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            found.push((name, std::fs::read_to_string(&path).unwrap()));
        }
    }
    found
}

#[test]
fn the_house_is_built_as_planned() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = files(&root, &root);
    let found: Vec<_> = files.iter().flat_map(|(path, text)| violations(path, text)).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
    let folders: BTreeSet<_> = files.iter().filter_map(|(path, _)| Some(path.split_once('/')?.0)).collect();
    assert_eq!(folders, PLAN.iter().map(|(name, _)| *name).collect(), "every room of the plan is there");
}

#[test]
fn every_room_says_what_it_is_for_and_holds_nothing_else() {
    for (folder, _) in PLAN {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(folder).join("mod.rs");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//! Floor "), "{folder} does not say what it is for");
        let belongs = |line: &str| {
            line.is_empty()
                || ["//!", "mod ", "pub use ", "}"].iter().any(|start| line.starts_with(start))
                || [",", "};"].iter().any(|end| line.ends_with(end))
        };
        let strange = text.lines().map(str::trim_start).find(|line| !belongs(line));
        assert_eq!(strange, None, "{folder}/mod.rs holds more than its plan");
    }
}

#[test]
fn each_kind_of_violation_is_seen() {
    let one = |path, text| violations(path, text).into_iter().next().unwrap_or_default();
    assert_eq!(one("output/ring.rs", "use crate::job::Job;"), "output/ring.rs: output must not see job");
    assert_eq!(one("job/log.rs", "fn f(c: crate::ssh::Channel) {}"), "job/log.rs: job must not see ssh");
    assert_eq!(one("mcp/server.rs", "use crate::runner::Runner;"), "mcp/server.rs: mcp must not see runner");
    assert_eq!(one("cli/run.rs", "use crate::mcp::serve;"), "cli/run.rs: cli must not see mcp");
    assert_eq!(one("cli/run.rs", "use crate::{mcp, api};"), "cli/run.rs: cli must not see mcp");
    assert_eq!(one("runner/reader.rs", "use russh::Channel;"), "runner/reader.rs: russh lives in ssh");
    assert_eq!(one("api/tail.rs", "rmcp::model::Tool"), "api/tail.rs: rmcp lives in mcp");
    assert_eq!(one("main.rs", "use clap::Parser;"), "main.rs: clap lives in cli");
    assert_eq!(one("helpers/misc.rs", ""), "helpers/misc.rs: there is no helpers on the plan");
    assert_eq!(
        one("output/ring.rs", "use tokio::time::Instant;"),
        "output/ring.rs: output is pure, without tokio"
    );
    assert_eq!(one("api/tail.rs", "// use rmcp::x\nuse crate::runner::Runner;"), "");
}

//! The house keeps its floors: imports point down, a foreign crate stays at home, no folder is off
//! the plan.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use regex::Regex;

/// Each folder, from the ground up, and the folders it may import.
const PLAN: [(&str, &[&str]); 25] = [
    ("output", &[]),
    ("scrub", &[]),
    ("notify", &[]),
    ("job", &["output", "scrub", "notify"]),
    ("ssh", &["output"]),
    ("approval", &[]),
    ("audit", &[]),
    ("policy", &["audit", "ssh"]),
    ("spool", &["output"]),
    ("hosts", &["job", "ssh", "output"]),
    ("store", &["job", "notify", "output"]),
    ("files", &["hosts", "job", "ssh"]),
    ("forward", &["hosts", "job", "ssh"]),
    (
        "runner",
        &["hosts", "store", "spool", "job", "ssh", "scrub", "output"],
    ),
    (
        "jobs",
        &[
            "runner", "files", "forward", "hosts", "store", "spool", "job", "policy", "approval",
            "notify", "audit", "ssh", "scrub", "output",
        ],
    ),
    ("wire", &["jobs"]),
    ("tokens", &["jobs"]),
    ("oidc", &["jobs"]),
    ("webhook", &["notify", "jobs"]),
    ("testing", &["jobs"]),
    ("remote", &["wire", "jobs"]),
    ("mcp", &["wire", "jobs"]),
    ("http", &["wire", "tokens", "oidc", "jobs"]),
    ("cli", &["remote", "wire", "tokens", "jobs", "audit"]),
    (
        "program",
        &[
            "cli", "http", "mcp", "remote", "webhook", "tokens", "wire", "jobs",
        ],
    ),
];

/// Files beside the folders: helpers that every room may use.
const EVERYBODY: [&str; 8] = [
    "blocking",
    "bounded_file",
    "dial",
    "lock",
    "nearest",
    "private_socket",
    "sync",
    "toml_text",
];

/// Foreign crates, and the rooms in which they may be used.
const HOMES: [(&str, &[&str]); 11] = [
    ("jsonwebtoken", &["oidc"]),
    ("russh", &["ssh"]),
    ("rmcp", &["mcp"]),
    ("clap", &["cli"]),
    ("ratatui", &["cli"]),
    ("rusqlite", &["store"]),
    ("async_nats", &["store"]),
    ("axum", &["http"]),
    ("similar", &["files"]),
    ("cap_std", &["wire"]),
    ("tar", &["files", "store"]),
];

/// Modules that the pure floor must not use.
const IMPURE: [&str; 10] = [
    "tokio",
    "Instant",
    "::now()",
    "Mutex",
    "atomic",
    "mpsc",
    "std::fs",
    "std::io",
    "std::net",
    "std::thread",
];

/// Violations in a file at `path` below `src`.
fn violations(path: &str, text: &str) -> Vec<String> {
    let code: String = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n");
    let folder = path.split_once('/').map_or("", |(folder, _)| folder);
    let mut found = Vec::new();
    if let Some((_, below)) = PLAN.iter().find(|(name, _)| *name == folder) {
        let inward = Regex::new(r"\bcrate::(?:\{\s*)?(\w+)").unwrap();
        for seen in inward.captures_iter(&code).map(|found| found[1].to_owned()) {
            let may = seen == folder
                || below.contains(&seen.as_str())
                || EVERYBODY.contains(&seen.as_str());
            if !may {
                found.push(format!("{path}: {folder} must not see {seen}"));
            }
        }
    } else if !folder.is_empty() {
        found.push(format!("{path}: there is no {folder} on the plan"));
    }
    for (name, homes) in HOMES {
        if !homes.contains(&folder) && Regex::new(&format!(r"\b{name}::")).unwrap().is_match(&code)
        {
            found.push(format!("{path}: {name} lives in {}", homes.join(", ")));
        }
    }
    let is_test = path.ends_with("tests.rs");
    if matches!(
        folder,
        "output" | "policy" | "approval" | "notify" | "scrub"
    ) && !is_test
    {
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
    let folders: BTreeSet<_> =
        files.iter().filter_map(|(path, _)| Some(path.split_once('/')?.0)).collect();
    assert_eq!(
        folders,
        PLAN.iter().map(|(name, _)| *name).collect(),
        "every room of the plan is there"
    );
}

/// Names of each file of a folder in imports, including its own folders: `path` below `src`,
/// without `.rs`.
struct Room {
    /// By the place: folder or file.
    texts: BTreeMap<String, String>,
}

impl Room {
    fn of(files: &[(String, String)]) -> Self {
        let code = |text: &str| {
            let tests = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
            text.split_at(tests)
                .0
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"))
                .collect::<Vec<_>>()
                .join("\n")
        };
        let texts = files.iter().filter(|(path, _)| !path.ends_with("tests.rs"));
        Self {
            texts: texts
                .map(|(path, text)| (path.trim_end_matches(".rs").to_owned(), code(text)))
                .collect(),
        }
    }

    /// The file that `name`, seen from folder `folder`, is defined in: a module, or what its mod.rs
    /// hands on.
    fn home(&self, folder: &str, name: &str) -> Option<String> {
        let module = format!("{folder}/{name}");
        if self.texts.contains_key(&module) || self.texts.contains_key(&format!("{module}/mod")) {
            return Some(module);
        }
        let face = self.texts.get(&format!("{folder}/mod"))?;
        let mut handed_on = face.split(';').filter_map(|part| Some(part.split_once("use ")?.1));
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let (file, _) = handed_on
            .find(|part| part.split(|c| !is_word(c)).any(|word| word == name))?
            .split_once("::")?;
        Some(format!("{folder}/{file}"))
    }

    /// The imports of all files of a folder, as pairs of places in it.
    fn imports(&self, folder: &str) -> BTreeSet<(String, String)> {
        let import = Regex::new(r"\buse (super|crate)::((?:[^;{}]|\{[^}]*\})*);").unwrap();
        let mut found = BTreeSet::new();
        for (path, text) in &self.texts {
            let Some(inner) = path.strip_prefix(&format!("{folder}/")) else { continue };
            let from = format!("{folder}/{}", inner.split('/').next().unwrap());
            if inner == "mod" {
                continue;
            }
            for import in import.captures_iter(text) {
                let up = path.rsplit_once('/').unwrap().0;
                let base = if &import[1] == "super" {
                    up.to_owned()
                } else {
                    String::new()
                };
                for name in names(&import[2]) {
                    let full = if base.is_empty() {
                        name
                    } else {
                        format!("{base}/{name}")
                    };
                    let Some(rest) = full.strip_prefix(&format!("{folder}/")) else { continue };
                    let Some(to) = self.home(folder, rest.split('/').next().unwrap()) else {
                        continue;
                    };
                    if to != from {
                        found.insert((from.clone(), to));
                    }
                }
            }
        }
        found
    }

    /// The imports that are part of a circle.
    fn circles(&self, folder: &str) -> Vec<String> {
        let imports = self.imports(folder);
        let closes = |(from, to): &&(String, String)| leads(&imports, to, from);
        imports
            .iter()
            .filter(closes)
            .map(|(from, to)| format!("{from} -> {to}"))
            .collect()
    }
}

/// The names that an import brings in: `a::{b, c::d}` gives `a/b` and `a/c/d`.
fn names(text: &str) -> Vec<String> {
    let text = text.replace(char::is_whitespace, "");
    match text.split_once('{') {
        None => vec![text.replace("::", "/")],
        Some((before, list)) => {
            let list = list.trim_end_matches('}').split(',').filter(|name| !name.is_empty());
            list.map(|name| format!("{before}{name}").replace("::", "/")).collect()
        }
    }
}

/// Whether imports lead from one place to another.
fn leads(imports: &BTreeSet<(String, String)>, from: &str, to: &str) -> bool {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(place) = next.pop() {
        if place == to {
            return true;
        }
        if seen.insert(place) {
            next.extend(
                imports.iter().filter(|(known, _)| known == place).map(|(_, to)| to.as_str()),
            );
        }
    }
    false
}

#[test]
fn no_folder_holds_a_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let room = Room::of(&files(&root, &root));
    let mut folders: BTreeSet<String> = PLAN.iter().map(|(name, _)| (*name).to_owned()).collect();
    folders
        .extend(room.texts.keys().filter_map(|path| Some(path.strip_suffix("/mod")?.to_owned())));
    let circles: Vec<String> = folders.iter().flat_map(|folder| room.circles(folder)).collect();
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}

#[test]
fn a_circle_is_seen_whatever_it_goes_through() {
    let circle = |files: &[(&str, &str)]| {
        let files: Vec<_> = files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
            .collect();
        Room::of(&files).circles("ssh")
    };
    let face = (
        "ssh/mod.rs",
        "mod a;\nmod b;\npub use a::{A, Other};\npub use b::B;",
    );
    assert!(
        circle(&[
            face,
            ("ssh/a.rs", "use super::B;"),
            ("ssh/b.rs", "use crate::ssh::A;")
        ])
        .len()
            >= 2
    );
    assert!(
        circle(&[
            face,
            ("ssh/a.rs", "use super::b::x;"),
            ("ssh/b.rs", "use super::{\n Other,\n};")
        ])
        .len()
            >= 2
    );
    assert_eq!(
        circle(&[
            face,
            ("ssh/a.rs", "use super::B;"),
            ("ssh/b.rs", "use std::fmt;")
        ]),
        Vec::<String>::new()
    );
    let inner = [
        face,
        ("ssh/a/mod.rs", "mod x;"),
        ("ssh/a/x.rs", "use crate::ssh::B;"),
        ("ssh/b.rs", "use super::A;"),
    ];
    assert!(
        circle(&inner).len() >= 2,
        "a folder is a place of the one around it"
    );
    let tests = "fn f() {}\n#[cfg(test)]\nmod tests {\nuse super::B;\n}";
    assert_eq!(
        circle(&[face, ("ssh/a.rs", tests), ("ssh/b.rs", "use super::A;")]),
        Vec::<String>::new()
    );
}

/// How high a folder lies: above all that it may see.
fn floor(folder: &str) -> usize {
    let (_, below) = PLAN.iter().find(|(name, _)| *name == folder).unwrap();
    below.iter().map(|below| floor(below) + 1).max().unwrap_or(0)
}

#[test]
fn every_folder_describes_itself_and_its_mod_file_has_no_code() {
    for (folder, _) in PLAN {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(folder).join("mod.rs");
        let text = std::fs::read_to_string(&path).unwrap();
        let floor = format!("//! Floor {}: ", floor(folder));
        assert!(
            text.starts_with(&floor),
            "{folder} does not describe itself with its floor: {floor}"
        );
        let belongs = |line: &str| {
            line.is_empty()
                || [
                    "//!",
                    "mod ",
                    "pub mod ",
                    "#[doc(hidden)]",
                    "#[cfg(",
                    "pub use ",
                    "pub(super) use ",
                    "pub(crate) use ",
                    "use ",
                    "}",
                ]
                .iter()
                .any(|start| line.starts_with(start))
                || [",", "};"].iter().any(|end| line.ends_with(end))
        };
        let strange = text.lines().map(str::trim_start).find(|line| !belongs(line));
        assert_eq!(strange, None, "{folder}/mod.rs holds more than its plan");
    }
}

#[test]
fn each_kind_of_violation_is_seen() {
    let one = |path, text| violations(path, text).into_iter().next().unwrap_or_default();
    assert_eq!(
        one("output/ring.rs", "use crate::job::Job;"),
        "output/ring.rs: output must not see job"
    );
    assert_eq!(
        one("job/log.rs", "fn f(c: crate::ssh::Channel) {}"),
        "job/log.rs: job must not see ssh"
    );
    assert_eq!(
        one("mcp/server.rs", "use crate::runner::Runner;"),
        "mcp/server.rs: mcp must not see runner"
    );
    assert_eq!(
        one("cli/run.rs", "use crate::mcp::serve;"),
        "cli/run.rs: cli must not see mcp"
    );
    assert_eq!(
        one("cli/run.rs", "use crate::{mcp, wire};"),
        "cli/run.rs: cli must not see mcp"
    );
    assert_eq!(
        one("runner/record.rs", "use russh::Channel;"),
        "runner/record.rs: russh lives in ssh"
    );
    assert_eq!(
        one("wire/tail.rs", "rmcp::model::Tool"),
        "wire/tail.rs: rmcp lives in mcp"
    );
    assert_eq!(
        one("main.rs", "use clap::Parser;"),
        "main.rs: clap lives in cli"
    );
    assert_eq!(
        one("helpers/misc.rs", ""),
        "helpers/misc.rs: there is no helpers on the plan"
    );
    assert_eq!(
        one("output/ring.rs", "use tokio::time::Instant;"),
        "output/ring.rs: output is pure, without tokio"
    );
    assert_eq!(
        one("wire/tail.rs", "// use rmcp::x\nuse crate::jobs::Jobs;"),
        ""
    );
}

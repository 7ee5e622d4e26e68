#![allow(
    unreachable_pub,
    dead_code,
    reason = "each test file uses its own part of this"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// docs/ci.md.
pub const PAGE: &str = include_str!("../../docs/ci.md");

/// The workflow of the page that has this job.
pub fn workflow(job: &str) -> Value {
    let blocks = PAGE.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let read = |block: &str| serde_saphyr::from_str::<Value>(block).expect("YAML");
    let mut found = blocks.map(read).filter(|workflow| !workflow["jobs"][job].is_null());
    found.next().unwrap_or_else(|| panic!("docs/ci.md has no job {job}"))["jobs"][job].take()
}

/// Runs the scripts in the steps of a GitHub job, as its runner does. Returns their output.
pub fn run_steps(job: &Value, (place, secrets): (&Path, &[(&str, &str)])) -> String {
    let mut printed = String::new();
    for step in job["steps"].as_array().expect("steps") {
        let Some(script) = step["run"].as_str() else { continue };
        let values = [&job["env"], &step["env"]].into_iter().filter_map(Value::as_object).flatten();
        let env: BTreeMap<&str, String> = values
            .map(|(name, value)| {
                (
                    name.as_str(),
                    expanded(value.as_str().unwrap(), place, secrets),
                )
            })
            .collect();
        printed += &run(script, place, &env);
    }
    printed
}

/// `${{ secrets.NAME }}` and the workspace.
fn expanded(text: &str, place: &Path, secrets: &[(&str, &str)]) -> String {
    let text = text.replace("${{ github.workspace }}", place.to_str().unwrap());
    let text = secrets.iter().fold(text, |text, (name, value)| {
        text.replace(&format!("${{{{ secrets.{name} }}}}"), value)
    });
    assert!(!text.contains("${{"), "{text}");
    text
}

/// Runs a script as CI does, with the binary under test on the PATH.
pub fn run(script: &str, place: &Path, env: &BTreeMap<&str, String>) -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_sshjobs")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["-eo", "pipefail", "-c", script])
        .current_dir(place)
        .env("PATH", path)
        .env("XDG_CONFIG_HOME", place.join("no-config"))
        .env("XDG_STATE_HOME", place.join("state"))
        .envs(env)
        .output()
        .unwrap();
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{script}\n{stdout}{stderr}");
    stdout.into_owned()
}

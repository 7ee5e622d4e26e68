//! The skill for agents (`skills/sshjobs`) and the plugin around it: their form (agentskills.io), and that they
//! name tools that exist.

use regex::Regex;
use serde_json::{Value, json};

use crate::support::{McpClient, Sshd};

const SKILL: &str = include_str!("../skills/sshjobs/SKILL.md");
const RECIPES: &str = include_str!("../skills/sshjobs/references/recipes.md");
const PLUGIN: &str = include_str!("../.claude-plugin/plugin.json");

/// The fields of the skill's head, and its body.
fn parts() -> (Vec<(&'static str, &'static str)>, &'static str) {
    let (head, body) = SKILL.strip_prefix("---\n").unwrap().split_once("\n---\n").unwrap();
    let fields = head.lines().map(|line| line.split_once(": ").unwrap());
    (fields.collect(), body)
}

#[test]
fn the_skill_has_the_form_of_its_specification() {
    let (fields, body) = parts();
    let field = |name: &str| fields.iter().find(|(known, _)| *known == name).unwrap().1;

    assert_eq!(field("name"), "sshjobs", "the name of its folder");
    assert!((1..=1024).contains(&field("description").len()));
    assert!(field("description").contains("Use when"));
    assert!(field("compatibility").len() <= 500);
    assert!(body.lines().count() < 500);
    // A colon and a space in a plain YAML value would begin a mapping.
    for (name, value) in &fields {
        assert!(!value.contains(": "), "{name}");
    }
    assert!(body.contains("(references/recipes.md)"));
}

#[tokio::test]
async fn the_skill_names_tools_that_exist() {
    let sshd = Sshd::start().await;
    let mut client = McpClient::start(&sshd.ssh_config());
    let listed = client.request("tools/list", json!({}));
    let tools: Vec<&str> = listed["result"]["tools"]
        .as_array()
        .unwrap_or_else(|| panic!("{listed}"))
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();

    let name = Regex::new(r"\bssh_[a-z]+\b").unwrap();
    for text in [SKILL, RECIPES] {
        let named: Vec<&str> = name.find_iter(text).map(|found| found.as_str()).collect();
        assert!(named.len() > 5);
        for tool in named {
            // The format of the hosts' file, not a tool.
            assert!(tool == "ssh_config" || tools.contains(&tool), "{tool}");
        }
    }
}

#[test]
fn the_plugin_has_the_version_of_the_program_and_starts_its_server() {
    let plugin: Value = serde_json::from_str(PLUGIN).unwrap();
    assert_eq!(plugin["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        plugin["mcpServers"]["sshjobs"],
        json!({"command": "sshjobs", "args": ["serve"]})
    );
}

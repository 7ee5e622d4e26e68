//! The pages of reference that are generated from the program: tools, HTTP API, error codes.
//! `UPDATE_DOCS=1 cargo test --test sshd references::` writes them.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::support::server::Server;
use crate::support::{McpClient, Sshd};

/// Compares a page with its generated text, or writes it.
fn check(name: &str, page: &str) {
    let file = format!("{}/docs/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, page).unwrap();
    }
    let known = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        known == page,
        "docs/{name} is out of date: UPDATE_DOCS=1 cargo test --test sshd references::"
    );
}

fn begin(title: &str) -> String {
    format!(
        "# {title}\n\nGenerated from the program by `UPDATE_DOCS=1 cargo test --test sshd references::`.\n"
    )
}

/// A text for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
        .replace('<', "&lt;")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// The type of a value in words.
fn kind(schema: &Value) -> String {
    if let Some(choices) = schema["enum"].as_array() {
        let words = choices.iter().filter_map(Value::as_str).map(|word| format!("`{word}`"));
        return words.collect::<Vec<_>>().join(", ");
    }
    let of = |kind: &str| match kind {
        "array" => format!("list of {}", self::kind(&schema["items"])),
        kind => kind.to_owned(),
    };
    if let Some(kind) = schema["type"].as_str() {
        return of(kind);
    }
    let kinds = schema["type"].as_array().map(Vec::as_slice).unwrap_or_default();
    let kinds = kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null");
    let kinds = kinds.map(of).collect::<Vec<_>>().join(" or ");
    if kinds.is_empty() {
        "object".to_owned()
    } else {
        kinds
    }
}

/// A table of the properties of a schema.
fn properties(schema: &Value) -> String {
    let required: Vec<&str> = schema["required"]
        .as_array()
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let mut table = String::from("| argument | type | meaning |\n|---|---|---|\n");
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let needed = if required.contains(&name.as_str()) {
            ", required"
        } else {
            ""
        };
        let meaning = cell(property["description"].as_str().unwrap_or_default());
        writeln!(
            table,
            "| `{name}` | {}{needed} | {meaning} |",
            kind(property)
        )
        .unwrap();
    }
    table
}

#[tokio::test]
async fn the_page_of_the_tools_is_what_the_server_lists() {
    let sshd = Sshd::start().await;
    let mut client = McpClient::start(&sshd.ssh_config());
    let listed = client.request("tools/list", json!({}));

    let mut page = begin("Tools");
    page += "\nThe tools of the MCP server. [For agents](agents.md) says how they are used together. The same arguments are those of the \
             [HTTP API](api.md).\n";
    for tool in listed["result"]["tools"].as_array().unwrap() {
        let (name, description) = (
            tool["name"].as_str().unwrap(),
            tool["description"].as_str().unwrap(),
        );
        writeln!(page, "\n## {name}\n\n{description}\n").unwrap();
        page += &properties(&tool["inputSchema"]);
    }
    check("tools.md", &page);
}

#[tokio::test]
async fn the_page_of_the_api_is_what_the_server_describes() {
    let sshd = Sshd::start().await;
    let server = Server::with(&sshd, &["--no-auth"]);
    let mut reply = ureq::get(format!("{}/v1/openapi.json", server.url)).call().unwrap();
    let described: Value =
        serde_json::from_str(&reply.body_mut().read_to_string().unwrap()).unwrap();

    let mut page = begin("HTTP API");
    page += "\nPaths are below `/v1`. Bodies and replies are JSON unless it says otherwise; `/v1/openapi.json` describes them in full. \
             [Team server](server.md) has examples with curl, and the [error codes](codes.md).\n";
    for (path, methods) in described["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            writeln!(page, "\n## {} /v1{path}\n", method.to_uppercase()).unwrap();
            writeln!(page, "{}.", cell(operation["summary"].as_str().unwrap())).unwrap();
            if let Some(description) = operation["description"].as_str() {
                writeln!(page, "\n{}", cell(description)).unwrap();
            }
            let body = &operation["requestBody"]["content"]["application/json"]["schema"];
            if body["properties"].is_object() {
                write!(page, "\n{}", properties(body)).unwrap();
            }
            if let Some(parameters) = operation["parameters"].as_array() {
                page += "\n| parameter | in | type | meaning |\n|---|---|---|---|\n";
                for parameter in parameters {
                    writeln!(
                        page,
                        "| `{}` | {} | {} | {} |",
                        parameter["name"].as_str().unwrap(),
                        parameter["in"].as_str().unwrap(),
                        kind(&parameter["schema"]),
                        cell(parameter["description"].as_str().unwrap_or_default())
                    )
                    .unwrap();
                }
            }
        }
    }
    check("api.md", &page);
}

#[test]
fn the_page_of_the_codes_has_every_code() {
    let schema = serde_json::to_value(schemars::schema_for!(sshjobs_wire::Code)).unwrap();
    let mut page = begin("Error codes");
    page += "\nEvery error has a stable `code`, a `message` that says what failed, a `hint` that says what to do next, and `retryable`: whether \
             the same call may succeed later. Messages and hints may change between versions; codes do not.\n\n| code | meaning |\n|---|---|\n";
    for code in schema["oneOf"].as_array().unwrap() {
        let meaning = cell(code["description"].as_str().unwrap());
        writeln!(
            page,
            "| `{}` | {meaning} |",
            code["const"].as_str().unwrap()
        )
        .unwrap();
    }
    check("codes.md", &page);
}

/// The tables of a report of `make bench`.
fn figures(report: &Value) -> String {
    let mut page = String::new();
    for section in report["sections"].as_array().unwrap() {
        let title = section["title"].as_str().unwrap();
        write!(
            page,
            "### {title}\n\n| what | sshjobs | peer | ratio | bar |\n|---|---|---|---|---|\n"
        )
        .unwrap();
        for row in section["rows"].as_array().unwrap() {
            let [what, ours, peer, bar] =
                ["what", "ours", "peer", "bar"].map(|name| row[name].as_str().unwrap());
            let ratio =
                row["ratio"].as_f64().map_or("–".to_owned(), |ratio| format!("{ratio:.2}"));
            writeln!(page, "| {what} | {ours} | {peer} | {ratio} | {bar} |").unwrap();
        }
        page.push('\n');
    }
    page
}

#[test]
fn the_benchmarks_show_the_figures_of_the_report() {
    const BEGIN: &str = "<!-- figures of report.json -->\n\n";
    const END: &str = "<!-- end of the figures -->\n";
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/");
    let page = std::fs::read_to_string(format!("{docs}benchmarks.md")).unwrap();
    let report = std::fs::read(format!("{docs}benchmarks/report.json")).unwrap();
    let report: Value = serde_json::from_slice(&report).unwrap();

    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();

    let figures = figures(&report);
    check(
        "benchmarks.md",
        &format!("{before}{BEGIN}{figures}{END}{after}"),
    );
}

//! The configuration file of each client: where it is, and in which form.

use std::path::{Path, PathBuf};

use super::entry::{CantAdd, ServerEntry};
use super::{json_file, toml_file, yaml_file};
use crate::args::McpClient;

/// Directories of a person, from which paths of configuration files are made.
#[derive(Clone, Debug)]
pub(super) struct Directories {
    pub(super) home: PathBuf,
    /// `XDG_CONFIG_HOME`, or its default.
    pub(super) config: PathBuf,
    /// Where programs with windows keep their configuration.
    pub(super) application_support: PathBuf,
}

impl Directories {
    /// Those of the current user. `None` without a home directory.
    pub(super) fn of_user() -> Option<Self> {
        let home = std::env::home_dir().filter(|home| home.is_absolute())?;
        let config = std::env::var_os("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .filter(|directory| directory.is_absolute())
            .unwrap_or_else(|| home.join(".config"));
        let application_support = if cfg!(target_os = "macos") {
            home.join("Library/Application Support")
        } else {
            config.clone()
        };
        Some(Self {
            home,
            config,
            application_support,
        })
    }
}

/// The file of a person.
pub(super) fn own_file(client: McpClient, directories: &Directories) -> PathBuf {
    let Directories {
        home,
        config,
        application_support,
    } = directories;
    match client {
        McpClient::ClaudeCode => {
            path_in("CLAUDE_CONFIG_DIR").as_ref().unwrap_or(home).join(".claude.json")
        }
        McpClient::ClaudeDesktop => application_support.join("Claude/claude_desktop_config.json"),
        McpClient::Codex => {
            path_in("CODEX_HOME").unwrap_or_else(|| home.join(".codex")).join("config.toml")
        }
        McpClient::Cursor => home.join(".cursor/mcp.json"),
        // On macOS, too.
        McpClient::Goose => config.join("goose/config.yaml"),
        McpClient::VsCode => application_support.join("Code/User/mcp.json"),
        McpClient::Windsurf => home.join(".codeium/windsurf/mcp_config.json"),
        McpClient::Zed => config.join("zed/settings.json"),
    }
}

fn path_in(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from)
}

/// The file of a project, below its directory. `None` if the client has none.
pub(super) fn project_file(client: McpClient) -> Option<&'static Path> {
    let file = match client {
        McpClient::ClaudeCode => ".mcp.json",
        McpClient::Codex => ".codex/config.toml",
        McpClient::Cursor => ".cursor/mcp.json",
        McpClient::VsCode => ".vscode/mcp.json",
        McpClient::Zed => ".zed/settings.json",
        McpClient::ClaudeDesktop | McpClient::Goose | McpClient::Windsurf => return None,
    };
    Some(Path::new(file))
}

/// The text of a client's file with an entry. Line ends stay as they are.
pub(super) fn with_entry(
    client: McpClient,
    text: &str,
    entry: &ServerEntry,
) -> Result<String, CantAdd> {
    if text.starts_with('\u{feff}') {
        return Err(CantAdd::OtherForm("it begins with a byte order mark"));
    }
    let lines = text.matches('\n').count();
    match text.matches("\r\n").count() {
        0 => changed(client, text, entry),
        with_return if with_return == lines => {
            let changed = changed(client, &text.replace("\r\n", "\n"), entry)?;
            Ok(changed.replace('\n', "\r\n"))
        }
        _ => Err(CantAdd::OtherForm("its lines end in two ways")),
    }
}

fn changed(client: McpClient, text: &str, entry: &ServerEntry) -> Result<String, CantAdd> {
    match client {
        McpClient::ClaudeCode => json_file::with_entry(text, "mcpServers", true, entry),
        McpClient::ClaudeDesktop | McpClient::Cursor | McpClient::Windsurf => {
            json_file::with_entry(text, "mcpServers", false, entry)
        }
        McpClient::VsCode => json_file::with_entry(text, "servers", true, entry),
        McpClient::Zed => json_file::with_entry(text, "context_servers", false, entry),
        McpClient::Codex => toml_file::with_entry(text, entry),
        McpClient::Goose => yaml_file::with_entry(text, entry),
    }
}

//! Arguments of `mcp` and its subcommands.

use clap::{Args, Subcommand, ValueEnum};

/// Arguments of `mcp`.
#[derive(Debug, Args)]
#[command(after_help = "\
`sshjobs serve` is the MCP server; a client starts it. docs/agents.md explains its tools.

Examples:
  sshjobs mcp install claude-code
  sshjobs mcp install cursor --project
  sshjobs mcp install codex -- --config ~/team.toml serve")]
pub struct McpArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub verb: McpSubcommand,
}

/// Subcommands of `mcp`.
#[derive(Debug, Subcommand)]
pub enum McpSubcommand {
    /// Add sshjobs to the configuration of a client for agents, after showing the change.
    Install(McpInstallArgs),
}

/// Arguments of `mcp install`.
#[derive(Debug, Args)]
#[command(after_help = "\
Only the entry of sshjobs changes; comments and other entries stay as they are, and are not shown. An entry
that starts the same stays, too; one that starts something else is replaced only with --replace. Restart the
client afterwards. Global options of this command don't become part of the entry: name them after `--`.

Files, below your home directory (on Linux; XDG_CONFIG_HOME, CODEX_HOME and
CLAUDE_CONFIG_DIR are respected):
  claude-code      .claude.json                               --project: .mcp.json
  claude-desktop   .config/Claude/claude_desktop_config.json
  codex            .codex/config.toml                         --project: .codex/config.toml
  cursor           .cursor/mcp.json                           --project: .cursor/mcp.json
  goose            .config/goose/config.yaml
  vscode           .config/Code/User/mcp.json                 --project: .vscode/mcp.json
  windsurf         .codeium/windsurf/mcp_config.json
  zed              .config/zed/settings.json                  --project: .zed/settings.json

Exit status: 0 if it is set up, or if the change was only shown; 1 if you declined; 2 if the file can't be
changed safely: the entry is then shown, for you to add; 255 if the file can't be read or written.")]
pub struct McpInstallArgs {
    /// The client.
    #[arg(value_enum)]
    pub client: McpClient,
    /// Change the file of the current directory, which a team shares, instead of your own.
    #[arg(long)]
    pub project: bool,
    /// Name of the entry.
    #[arg(long, value_name = "NAME", default_value = "sshjobs")]
    pub name: String,
    /// Replace an entry with this name that starts something else, with all of its fields.
    #[arg(long)]
    pub replace: bool,
    /// Write without asking.
    #[arg(long, short)]
    pub yes: bool,
    /// Show the change, and write nothing.
    #[arg(long, short = 'n', conflicts_with = "yes")]
    pub dry_run: bool,
    /// Arguments of sshjobs, after `--`. Default: serve.
    #[arg(last = true, value_name = "ARGUMENT")]
    pub arguments: Vec<String>,
}

/// A client for agents that starts MCP servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum McpClient {
    /// Claude Code.
    ClaudeCode,
    /// Claude Desktop.
    ClaudeDesktop,
    /// Codex.
    Codex,
    /// Cursor.
    Cursor,
    /// Goose.
    Goose,
    /// VS Code.
    #[value(name = "vscode")]
    VsCode,
    /// Windsurf.
    Windsurf,
    /// Zed.
    Zed,
}

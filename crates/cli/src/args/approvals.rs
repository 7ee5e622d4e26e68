//! Arguments of `approvals`, `approve` and `deny`.

use clap::Args;

/// Arguments of `approvals`.
#[derive(Debug, Args)]
#[command(after_help = "\
A rule of the policy may require that another person approves a call. Approvers list, approve and
deny these calls here; other callers see their own. Values of variables and stdin are not shown.

Examples:
  sshjobs approvals --policy policy.toml              on the server's machine
  sshjobs approvals --server https://jobs.example.com
  sshjobs approve ap_k3x9q27fhm1b
  sshjobs deny ap_k3x9q27fhm1b --reason 'not during the release'")]
pub struct ApprovalsArgs {
    /// Also show those that are decided, used or expired. They are kept for a day.
    #[arg(long)]
    pub all: bool,
    /// Write a line of JSON for each.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `approve`.
#[derive(Debug, Args)]
#[command(after_help = "\
The call goes through once, when its caller repeats it; it has ten minutes for that. A change of the
policy, of the host's key or of the call makes the approval void.

Exit status: 0 if the vote was recorded, 255 if not, for example because the approval has expired.")]
pub struct ApproveArgs {
    /// Id of the approval, from `sshjobs approvals`.
    pub id: String,
    /// Why, for the audit log.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Write a line of JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `deny`.
#[derive(Debug, Args)]
#[command(after_help = "\
The caller receives your name and the reason. The same call is refused for ten minutes.

Exit status: 0 if the vote was recorded, 255 if not, for example because the approval has expired.")]
pub struct DenyArgs {
    /// Id of the approval, from `sshjobs approvals`.
    pub id: String,
    /// Why, for the caller and the audit log.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Write a line of JSON.
    #[arg(long)]
    pub json: bool,
}

//! The command line without its texts. It describes only the verb that is called: a description of all
//! verbs costs two milliseconds at every start.

use clap::{Args, Command};

use super::{
    approvals, audit, cli, cluster, files, forward, hosts, jobs, mcp, policy, program, run, serve,
    token,
};

/// Adds the arguments of a verb.
type AddArgs = fn(Command) -> Command;

/// The arguments of each verb.
const VERBS: [(&str, AddArgs); 40] = [
    ("demo", program::DemoArgs::augment_args),
    ("serve", serve::ServeArgs::augment_args),
    ("mcp", mcp::McpArgs::augment_args),
    ("token", token::TokenArgs::augment_args),
    ("policy", policy::PolicyArgs::augment_args),
    ("approvals", approvals::ApprovalsArgs::augment_args),
    ("approve", approvals::ApproveArgs::augment_args),
    ("deny", approvals::DenyArgs::augment_args),
    ("audit", audit::AuditArgs::augment_args),
    ("cluster", cluster::ClusterArgs::augment_args),
    ("store", cluster::StoreArgs::augment_args),
    ("run", run::RunArgs::augment_args),
    ("spawn", run::SpawnArgs::augment_args),
    ("tail", jobs::TailArgs::augment_args),
    ("log", jobs::LogArgs::augment_args),
    ("read", jobs::ReadArgs::augment_args),
    ("export", jobs::ExportArgs::augment_args),
    ("screen", jobs::ScreenArgs::augment_args),
    ("inspect", jobs::InspectArgs::augment_args),
    ("attach", jobs::AttachArgs::augment_args),
    ("search", jobs::SearchArgs::augment_args),
    ("write", jobs::WriteArgs::augment_args),
    ("signal", jobs::SignalArgs::augment_args),
    ("wait", jobs::WaitArgs::augment_args),
    ("watch", jobs::WatchArgs::augment_args),
    ("jobs", jobs::JobsArgs::augment_args),
    ("top", jobs::TopArgs::augment_args),
    ("forget", jobs::ForgetArgs::augment_args),
    ("put", files::PutArgs::augment_args),
    ("get", files::GetArgs::augment_args),
    ("edit", files::EditArgs::augment_args),
    ("forward", forward::ForwardArgs::augment_args),
    ("hosts", hosts::HostsArgs::augment_args),
    ("ping", hosts::PingArgs::augment_args),
    ("trust", hosts::TrustArgs::augment_args),
    ("init", program::InitArgs::augment_args),
    ("config", program::ConfigArgs::augment_args),
    ("completions", program::CompletionsArgs::augment_args),
    ("man", program::ManArgs::augment_args),
    ("help", program::HelpArgs::augment_args),
];

/// The command line, for arguments without mistakes. [`command_line`](super::command_line) accepts the
/// same.
pub(super) fn quick_command_line() -> Command {
    let program = Command::new("sshjobs").disable_help_subcommand(true).subcommand_required(true);
    VERBS.iter().fold(
        cli::GlobalArgs::augment_args(program),
        |program, (verb, add_args)| program.subcommand(Command::new(*verb).defer(*add_args)),
    )
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn arguments(mut verb: Command) -> Vec<String> {
        verb.build();
        verb.get_arguments().map(|argument| format!("{argument:?}")).collect()
    }

    #[test]
    fn every_verb_has_the_same_arguments_as_in_the_whole_command_line() {
        let program = cli::Cli::command();
        let mut names: Vec<_> = program.get_subcommands().map(Command::get_name).collect();
        let mut quick: Vec<_> = VERBS.map(|(verb, _)| verb).to_vec();
        names.sort_unstable();
        quick.sort_unstable();
        assert_eq!(quick, names);
        for (verb, add_args) in VERBS {
            let whole = program.find_subcommand(verb).unwrap().clone();
            let quick = add_args(Command::new(verb));
            assert_eq!(arguments(quick), arguments(whole), "{verb}");
        }
    }
}

//! A description of the command line that has the arguments of only the verb that is called: those of all
//! verbs, with their texts for people, cost more than a millisecond at every start.

use clap::{Args, Command};

use super::{
    approvals, audit, cli, cluster, files, forward, hosts, jobs, mcp, policy, program, queue, run,
    serve, token, waiting,
};

/// Adds the arguments of a verb.
type AddArgs = fn(Command) -> Command;

/// The arguments of each verb.
const VERBS: [(&str, AddArgs); 44] = [
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
    ("rerun", run::RerunArgs::augment_args),
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
    ("wait", waiting::WaitArgs::augment_args),
    ("watch", waiting::WatchArgs::augment_args),
    ("jobs", jobs::JobsArgs::augment_args),
    ("queue", queue::QueueArgs::augment_args),
    ("top", jobs::TopArgs::augment_args),
    ("forget", jobs::ForgetArgs::augment_args),
    ("put", files::PutArgs::augment_args),
    ("get", files::GetArgs::augment_args),
    ("sync", files::SyncArgs::augment_args),
    ("fetch", files::FetchArgs::augment_args),
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

/// Verbs, and other names of them.
const ALIASES: [(&str, &str); 4] = [
    ("run", "exec"),
    ("log", "logs"),
    ("signal", "kill"),
    ("jobs", "ps"),
];

/// The command line, for arguments without mistakes: [`command_line`](super::command_line) without help.
pub(super) fn quick_command_line() -> Command {
    let program = Command::new("sshjobs").disable_help_subcommand(true).subcommand_required(true);
    VERBS.iter().fold(
        cli::GlobalArgs::augment_args(program),
        |program, (verb, add_args)| {
            let aliases = ALIASES.iter().filter(|(of, _)| of == verb).map(|(_, alias)| *alias);
            program.subcommand(Command::new(*verb).aliases(aliases).defer(*add_args))
        },
    )
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Names, aliases and arguments of a verb, those of all verbs included.
    fn described(verb: &Command) -> String {
        let mut arguments: Vec<_> =
            verb.get_arguments().map(|argument| format!("{argument:?}")).collect();
        arguments.sort_unstable();
        let aliases: Vec<_> = verb.get_all_aliases().collect();
        format!("{} {aliases:?} {arguments:#?}", verb.get_name())
    }

    #[test]
    fn every_verb_is_as_in_the_whole_command_line() {
        let mut quick = quick_command_line();
        let mut whole = cli::Cli::command();
        quick.clone().debug_assert();
        quick.build();
        whole.build();
        assert_eq!(
            quick.get_subcommands().count(),
            whole.get_subcommands().count()
        );
        for verb in whole.get_subcommands() {
            let quick = quick.find_subcommand(verb.get_name()).unwrap();
            assert_eq!(described(quick), described(verb));
        }
    }
}

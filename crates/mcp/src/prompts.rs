//! Prompts for frequent requests, for clients that show them in a menu.

use rmcp::model::{
    CacheScope, ErrorData, GetPromptRequestParams, GetPromptResult, ListPromptsResult, Prompt,
    PromptArgument, PromptMessage, Role as Speaker,
};

use sshjobs_core::jobs::Role;

/// One prompt.
struct PromptArguments {
    name: &'static str,
    title: &'static str,
    description: &'static str,
    /// Names and descriptions of its arguments. All are required.
    arguments: &'static [(&'static str, &'static str)],
    /// Minimum role that its tools need.
    needs: Role,
    /// The text. `{NAME}` stands for an argument.
    text: &'static str,
}

const ALL: [PromptArguments; 3] = [
    PromptArguments {
        name: "explain_job",
        title: "Explain a job",
        description: "Find out how a job went, and why",
        arguments: &[("job_id", "The job")],
        needs: Role::Read,
        text: "Find out the state of job {job_id}, or how it ended: read its last lines with \
            ssh_tail (keep=\"last\"), and search for errors with ssh_search. Report the outcome, \
            its likely cause with the lines that show it, and what to do next.",
    },
    PromptArguments {
        name: "run_and_report",
        title: "Run a command and report",
        description: "Run a command on a host, follow it to its end, and report",
        arguments: &[("host", "The host"), ("command", "The command line")],
        needs: Role::Run,
        text: "Start this command on {host} with ssh_spawn, and follow it with ssh_tail until still_running is false:\n\n{command}\n\n\
               Tell me how it has ended, and show the lines that matter.",
    },
    PromptArguments {
        name: "check_hosts",
        title: "Check hosts with a tag",
        description: "See how all hosts with a tag are: load, memory, disks, failed services",
        arguments: &[("tag", "The tag")],
        needs: Role::Run,
        text: "List the hosts with the tag {tag} (ssh_hosts), run `uptime; free -m; df -h; \
            systemctl --failed` on each with ssh_run, and give me a table with one row per host, \
            anomalies first.",
    },
];

/// The prompts that a role can use.
pub(super) fn list(role: Role) -> ListPromptsResult {
    let prompts = ALL.iter().filter(|asked| asked.needs <= role).map(|asked| {
        let arguments = asked
            .arguments
            .iter()
            .map(|(name, description): &(&str, &str)| {
                PromptArgument::new(*name).with_description(*description).with_required(true)
            })
            .collect();
        Prompt::new(asked.name, Some(asked.description), Some(arguments)).with_title(asked.title)
    });
    ListPromptsResult::with_all_items(prompts.collect())
        // The list depends on the caller's role, which may change.
        .with_ttl_ms(0)
        .with_cache_scope(CacheScope::Private)
}

/// A prompt with its arguments filled in.
pub(super) fn get(
    role: Role,
    request: &GetPromptRequestParams,
) -> Result<GetPromptResult, ErrorData> {
    let asked = ALL.iter().find(|asked| asked.name == request.name && asked.needs <= role);
    let Some(asked) = asked else {
        return Err(ErrorData::invalid_params(
            format!("no prompt is called {:?}", request.name),
            None,
        ));
    };
    let mut text = asked.text.to_owned();
    for (name, _) in asked.arguments {
        let given = request.arguments.as_ref().and_then(|given| given.get(*name)?.as_str());
        let Some(value) = given.filter(|value| !value.trim().is_empty()) else {
            return Err(ErrorData::invalid_params(
                format!("{} needs the argument {name:?}", asked.name),
                None,
            ));
        };
        text = text.replace(&format!("{{{name}}}"), value);
    }
    let mut prompt = GetPromptResult::new(vec![PromptMessage::new_text(Speaker::User, text)]);
    prompt.description = Some(asked.description.to_owned());
    Ok(prompt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_filled_in_and_lacks_nothing() {
        let request = |arguments: serde_json::Value| {
            let mut request = GetPromptRequestParams::new("explain_job");
            request.arguments = arguments.as_object().cloned();
            request
        };
        let got = get(
            Role::Read,
            &request(serde_json::json!({"job_id": "web1-7f3k9q2m"})),
        )
        .unwrap();
        assert!(serde_json::to_string(&got).unwrap().contains("state of job web1-7f3k9q2m"));
        assert!(get(Role::Read, &request(serde_json::json!({}))).is_err());
        assert!(
            get(Role::Read, &GetPromptRequestParams::new("run_and_report")).is_err(),
            "it may not act"
        );
        assert_eq!(
            (
                list(Role::Read).prompts.len(),
                list(Role::Run).prompts.len()
            ),
            (1, 3)
        );
    }
}

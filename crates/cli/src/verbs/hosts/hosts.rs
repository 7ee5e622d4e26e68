//! `sshjobs hosts`: the list of hosts, or one host with its settings.

use crate::args::HostsArgs;
use crate::exit::print;
use crate::json::pretty_json;
use crate::terminal::{in_columns, padded};
use crate::{ProgramExit, report};
use sshjobs_core::jobs::printable;
use sshjobs_wire::remote::Api;
use sshjobs_wire::{Code, Error, HostEntry, HostsRequest, TemplateEntry};

/// Lists hosts, or tests one. Fails if the tested host can't be reached.
pub async fn hosts(api: &Api, args: HostsArgs) -> ProgramExit {
    if args.gpus {
        return super::gpus::gpus(api, args).await;
    }
    let probed = args.host.is_some();
    if !probed && !args.ssh.to_ssh().is_empty() {
        let hint = "name it: sshjobs hosts HOST -p PORT";
        report(&Error::new(
            Code::InvalidArgument,
            "-p, -l, -i, -J and -o are for one host",
            hint,
        ));
        return ProgramExit::USAGE;
    }
    let reply = match api
        .hosts(HostsRequest {
            host: args.host,
            tag: args.tag,
            ..HostsRequest::default()
        })
        .await
    {
        Ok(reply) => reply,
        Err(error) => {
            report(&error);
            return ProgramExit::of_error(&error);
        }
    };
    let text = if args.json {
        pretty_json(&reply.hosts)
    } else if probed {
        let details: String = reply.hosts.iter().map(details).collect();
        format!("{details}{}", templates(&reply.templates))
    } else {
        format!("{}\n{}", table(&reply.hosts), templates(&reply.templates))
    };
    let printed = print(text.trim_end());
    api.shutdown().await;
    let failed = probed && reply.hosts.iter().any(|host| !host.connected);
    match printed {
        ProgramExit::SUCCESS if failed => ProgramExit::CONNECTION,
        printed => printed,
    }
}

fn details(host: &HostEntry) -> String {
    let via = (!host.via.is_empty()).then(|| host.via.join(", "));
    let rows = [
        ("address", &host.address),
        ("via", &via),
        ("user", &host.user),
        ("server", &host.server),
        ("host key", &host.host_key),
        ("kex", &host.kex),
        ("cipher", &host.cipher),
        ("login shell", &host.login_shell),
        ("error", &host.last_error),
    ];
    let tags = (!host.tags.is_empty()).then(|| host.tags.join(", "));
    let templates = (!host.templates.is_empty()).then(|| host.templates.join(", "));
    let state = if host.connected {
        "reachable"
    } else {
        "not reachable"
    };
    let shown = rows.iter().chain([&("tags", &tags), &("templates", &templates)]).fold(
        format!("{}: {state}\n", printable(&host.name)),
        |text, (name, value)| match value {
            Some(value) => format!("{text}  {} {}\n", padded(name, 12), printable(value)),
            None => text,
        },
    );
    let set = host.settings.iter().fold(String::new(), |text, setting| {
        let value = printable(&setting.value);
        let source = printable(&setting.source);
        format!("{text}    {} {value}  ({source})\n", setting.option)
    });
    let listed = printable(&host.listed_in.join(", "));
    format!("{shown}  listed in    {listed}\n  settings:\n{set}")
}

/// The command templates of the policy, with the values that their parameters accept.
fn templates(templates: &[TemplateEntry]) -> String {
    let mut text = String::new();
    for template in templates {
        let description = template.description.as_deref().unwrap_or_default();
        let command = &template.command;
        text.push_str(&format!("\ntemplate {}: {command}\n", template.name));
        if !description.is_empty() {
            text.push_str(&format!("  {description}\n"));
        }
        for (name, accepted) in &template.params {
            text.push_str(&format!("  --param {name}=   {accepted}\n"));
        }
    }
    text.lines().map(|line| format!("{}\n", printable(line))).collect()
}

fn table(hosts: &[HostEntry]) -> String {
    if hosts.is_empty() {
        let hint =
            "add `Host` entries to ~/.ssh/config, or [hosts.NAME] tables to the configuration";
        report(&Error::new(
            Code::UnknownHost,
            "no hosts are configured",
            hint,
        ));
    }
    in_columns(
        &hosts
            .iter()
            .map(|host: &HostEntry| {
                let via = if host.via.is_empty() {
                    String::new()
                } else {
                    format!(" via {}", host.via.join(", "))
                };
                let tags: String = host.tags.iter().map(|tag| format!(" #{tag}")).collect();
                let place = match (&host.user, &host.address) {
                    (Some(user), Some(address)) => format!("{user}@{address}{via}{tags}"),
                    _ => format!(
                        "[{}]{tags}",
                        host.last_error.as_deref().unwrap_or("not resolved")
                    ),
                };
                let listed = host.listed_in.join(", ");
                [
                    printable(&host.name),
                    format!("{}  ({})", printable(&place), printable(&listed)),
                ]
            })
            .collect::<Vec<_>>(),
    )
    .join("\n")
}

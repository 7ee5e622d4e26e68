//! The MCP server: its tools, with the descriptions that a model reads. The parameters are described
//! in `wire/verbs`, the other requests handled in `handler.rs`. All work is done by the service.

use std::sync::Arc;

use http::request::Parts;
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::tool::ToolCallContext;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ErrorData, Extensions, JsonObject,
    Tool,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, tool, tool_router};
use serde_json::json;

use crate::app::{LOG_APP, ui_meta};
use crate::ask::Elicitor;
use crate::resources::Subscriptions;
use crate::tools::{
    CancelledTools, Parked, ToolCall, answer, answered, call, input, input_without, output, tasks,
};
use sshjobs_core::jobs::{Role, nearest};
use sshjobs_wire::{
    ForgetReply, ForgetRequest, ForwardReply, ForwardRequest, GetReply, GetRequest, HostsReply,
    HostsRequest, JobsReply, JobsRequest, PutReply, PutRequest, ReadReply, ReadRequest, RunReply,
    RunRequest, SearchReply, SearchRequest, Service, SignalReply, SignalRequest, SpawnReply,
    SpawnRequest, TailReply, TailRequest, WaitReply, WaitRequest, WriteReply, WriteRequest,
};

/// The MCP server: a thin face over the service.
#[derive(Clone)]
pub(super) struct McpServer {
    pub(super) service: Arc<Service>,
    pub(super) tool_router: Arc<ToolRouter<Self>>,
    pub(super) subscriptions: Arc<Subscriptions>,
    pub(super) tasks: Arc<CancelledTools>,
    pub(super) elicitor: Arc<Elicitor>,
    /// Calls whose clients are asking a person.
    pub(super) parked: Arc<Parked<ToolCall>>,
}

/// Arguments that ssh_run takes as ssh_spawn does, but does not show, because each costs every model
/// tokens: those for roll-outs, order, repeated calls and special terminals.
const RARE_FOR_RUN: [&str; 16] = [
    "after",
    "after_ok",
    "answer_queries",
    "become_method",
    "canary",
    "cols",
    "idempotency_key",
    "label",
    "max_parallel",
    "notify",
    "queue",
    "retry",
    "rows",
    "secret_stdin",
    "stop_after_failures",
    "term",
];

/// Arguments that are accepted by ssh_spawn and not shown. The command line has them all.
const RARE_FOR_SPAWN: [&str; 11] = [
    "after",
    "answer_queries",
    "become_method",
    "canary",
    "cols",
    "max_parallel",
    "retry",
    "rows",
    "secret_stdin",
    "stop_after_failures",
    "term",
];

/// Tools whose result clients may show as a live log.
const SHOW_LOG: [&str; 2] = ["ssh_spawn", "ssh_run"];

/// Whether a caller that may only read jobs may use a tool.
fn is_for_readers(tool: &Tool) -> bool {
    // Files are read with the rights of the account on the host, as by a command.
    let reads_files = tool.name == "ssh_get";
    // A tool without the hint may act.
    let hints = tool.annotations.as_ref();
    !reads_files && hints.is_some_and(|hints| hints.read_only_hint == Some(true))
}

#[tool_router]
impl McpServer {
    pub(super) fn new(service: Arc<Service>, elicitor: Arc<Elicitor>) -> Self {
        let mut tool_router = Self::tool_router();
        if service.library().rights().role < Role::Run {
            for tool in tool_router.list_all() {
                if !is_for_readers(&tool) {
                    tool_router.remove_route(&tool.name);
                }
            }
        }
        Self {
            service,
            tool_router: Arc::new(tool_router),
            subscriptions: Arc::default(),
            tasks: Arc::default(),
            elicitor,
            parked: Arc::default(),
        }
    }

    /// The tools, as this caller may use them.
    pub(super) fn tools(&self) -> Vec<Tool> {
        let mut tools = self.tool_router.list_all();
        for tool in &mut tools {
            if SHOW_LOG.contains(&&*tool.name) {
                tool.meta = Some(ui_meta(json!({"resourceUri": LOG_APP})));
            }
            if self.service.offers_local_files() {
                continue;
            }
            let local_path = match &*tool.name {
                "ssh_get" => "to",
                "ssh_put" => "from",
                _ => continue,
            };
            let mut schema = (*tool.input_schema).clone();
            let properties = schema.get_mut("properties").and_then(|all| all.as_object_mut());
            if let Some(properties) = properties {
                properties.remove(local_path);
            }
            tool.input_schema = Arc::new(schema);
        }
        tools
    }

    /// The same server for a new session.
    pub(super) fn for_new_session(&self) -> Self {
        Self {
            // Tasks and parked calls stay shared: a client may return to them in its next session.
            subscriptions: Arc::default(),
            ..self.clone()
        }
    }

    /// The same server with the service of a request. Over HTTP each request has its own, with the address
    /// and the claims of its caller.
    pub(super) fn for_request(&self, extensions: &Extensions) -> Self {
        let parts = extensions.get::<Parts>();
        match parts.and_then(|parts| parts.extensions.get::<Service>()) {
            Some(service) => Self {
                service: Arc::new(service.clone()),
                ..self.clone()
            },
            None => self.clone(),
        }
    }

    /// Role of the caller.
    pub(super) fn role(&self) -> Role {
        self.service.library().rights().role
    }

    /// Calls a tool by name.
    pub(super) async fn call_any(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(_) = self.tool_router.get(&request.name) else {
            let names = self.tool_router.list_all();
            let nearest = nearest(&request.name, names.iter().map(|tool| &*tool.name));
            let hint = nearest.map_or_else(String::new, |name| format!("; did you mean {name:?}?"));
            // The client chose the name: a long one must not fill the error.
            let name: String = request.name.chars().take(64).collect();
            return Err(ErrorData::invalid_params(
                format!("no tool is called {name:?}{hint}"),
                None,
            ));
        };
        if let Some(call) = ToolCall::resume((&self.elicitor, &self.parked), &request).await? {
            return ToolCall::attend(call, (&self.elicitor, &self.parked), &context).await;
        }
        let server = self.for_request(&context.extensions);
        if !call::can_ask(&request.name, &context) {
            return answered(server.call_known(request, context)).await;
        }
        // The call may outlive this request, so it owns its server.
        let call = ToolCall::begin(
            &self.elicitor,
            request,
            &context,
            |request, context| async move { answered(server.call_known(request, context)).await },
        );
        ToolCall::attend(call, (&self.elicitor, &self.parked), &context).await
    }

    /// Calls a known tool.
    async fn call_known(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let knows_tasks = context.client_capabilities().is_some_and(|can| can.supports_tasks());
        if !knows_tasks || !matches!(&*request.name, tasks::RUN | tasks::WAIT) {
            return self.tool_router.call(ToolCallContext::new(self, request, context)).await;
        }
        let called = self.tasks.call(
            &self.service,
            &request.name,
            request.arguments.unwrap_or_default(),
        );
        // The router's tools watch the token in `answer`; calls that become tasks don't.
        match context.ct.run_until_cancelled(called).await {
            Some(answer) => Ok(answer),
            None => Err(ErrorData::internal_error("the call was cancelled", None)),
        }
    }

    /// Start a command on a remote host as a job and return its job_id at once; follow it with
    /// ssh_tail. Use it for anything slow, chatty or interactive. Example: {"host": "web1",
    /// "command": "make test", "cwd": "~/app"}
    #[tool(
        name = "ssh_spawn",
        title = "Start a remote job",
        input_schema = input_without::<SpawnRequest>(&RARE_FOR_SPAWN),
        output_schema = output::<SpawnReply>(),
        annotations(read_only_hint = false, destructive_hint = true, idempotent_hint = false, open_world_hint = true)
    )]
    async fn ssh_spawn(
        &self,
        arguments: JsonObject,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        answer(&self.service, arguments, context, async |request| {
            self.service.spawn(request).await
        })
        .await
    }

    /// Read a job's output after a cursor, waiting up to wait_ms for news. Pass last_line_no as the
    /// next since_line_no until still_running is false; finished jobs read the same. keep="last",
    /// filter and until reduce noise. Example: {"job_id": "web1-7f3k9q2m", "since_line_no": 120,
    /// "wait_ms": 5000}
    #[tool(
        name = "ssh_tail",
        title = "Follow a job's output",
        input_schema = input::<TailRequest>(),
        output_schema = output::<TailReply>(),
        // Not idempotent with `reader`, whose cursor moves.
        annotations(read_only_hint = true, destructive_hint = false, idempotent_hint = false, open_world_hint = false)
    )]
    async fn ssh_tail(
        &self,
        arguments: JsonObject,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        answer(&self.service, arguments, context, async |request| {
            self.service.tail(request).await
        })
        .await
    }

    /// Read a part of a job's output by position, from the start or (negative offset) the end; use
    /// it to look back. Example: {"job_id": "web1-7f3k9q2m", "offset": -20}
    #[tool(
        name = "ssh_read",
        title = "Read a part of a job's output",
        // `limit` is another name of `length`.
        input_schema = input_without::<ReadRequest>(&["limit", "render"]),
        output_schema = output::<ReadReply>(),
        annotations(read_only_hint = true, destructive_hint = false, idempotent_hint = true, open_world_hint = false)
    )]
    async fn ssh_read(
        &self,
        arguments: JsonObject,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        answer(&self.service, arguments, context, async |request| {
            self.service.read(request).await
        })
        .await
    }

    /// Find lines of a job's output by regex, with numbers and context; use it to find errors in
    /// long output. Example: {"job_id": "web1-7f3k9q2m", "pattern": "(?i)error"}
    #[tool(
        name = "ssh_search",
        title = "Search a job's output",
        input_schema = input::<SearchRequest>(),
        output_schema = output::<SearchReply>(),
        annotations(read_only_hint = true, destructive_hint = false, idempotent_hint = true, open_world_hint = false)
    )]
    async fn ssh_search(
        &self,
        arguments: JsonObject,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        answer(&self.service, arguments, context, async |request| {
            self.service.search(request).await
        })
        .await
    }

    /// Wait for the end of several jobs, and return a summary of each, with the last lines of those
    /// that failed if asked. Example: {"job_ids": ["web1-7f3k9q2m"], "last_lines": 20}
    #[tool(
        name = "ssh_wait",
        title = "Wait for jobs to end",
        input_schema = input::<WaitRequest>(),
        output_schema = output::<WaitReply>(),
        annotations(read_only_hint = true, destructive_hint = false, idempotent_hint = true, open_world_hint = false)
    )]
    async fn ssh_wait(
        &self,
        arguments: JsonObject,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        answer(&self.service, arguments, context, async |request| {
            self.service.wait(request).await
        })
        .await
    }

    /// Write text, bytes or keys to a job's stdin, or close it; use it to answer a prompt. With
    /// wait_ms the reply contains the job's output since. Example: {"job_id": "web1-7f3k9q2m",
    /// "data": "yes", "newline": true, "wait_ms": 5000}
    #[tool(
        name = "ssh_write",
        title = "Write to a job's stdin",
        input_schema = input_without::<WriteRequest>(&["cols", "filter", "keep", "rows"]),
        output_schema = output::<WriteReply>(),
        annotations(read_only_hint = false, destructive_hint = true, idempotent_hint = false, open_world_hint = true)
    )]
    async fn ssh_write(
        &self,
        arguments: JsonObject,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        answer(&self.service, arguments, context, async |request| {
            self.service.write(request).await
        })
        .await
    }

    /// Run a quick command on a remote host and wait for its end: exit status, first and last
    /// lines. If it takes longer than wait_ms the job continues, and the reply says how to follow
    /// it. Example: {"host": "web1", "command": "uname -a"}
    #[tool(
        name = "ssh_run",
        title = "Run a remote command",
        input_schema = input_without::<RunRequest>(&RARE_FOR_RUN),
        output_schema = output::<RunReply>(),
        annotations(read_only_hint = false, destructive_hint = true, idempotent_hint = false, open_world_hint = true)
    )]
    async fn ssh_run(
        &self,
        arguments: JsonObject,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        answer(&self.service, arguments, context, async |request| {
            self.service.run(request).await
        })
        .await
    }

    /// Signal all processes of a job and report whether they are verified dead; use it to stop a
    /// job. Example: {"job_id": "web1-7f3k9q2m", "grace_ms": 3000}
    #[tool(
        name = "ssh_signal",
        title = "Signal a job",
        input_schema = input::<SignalRequest>(),
        output_schema = output::<SignalReply>(),
        annotations(read_only_hint = false, destructive_hint = true, idempotent_hint = false, open_world_hint = true)
    )]
    async fn ssh_signal(
        &self,
        arguments: JsonObject,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        answer(&self.service, arguments, context, async |request| {
            self.service.signal(request).await
        })
        .await
    }

    /// List jobs, newest first, with state, times and counts. Example: {"state": "running"}
    #[tool(
        name = "ssh_jobs",
        title = "List jobs",
        input_schema = input_without::<JobsRequest>(&["cached"]),
        output_schema = output::<JobsReply>(),
        annotations(read_only_hint = true, destructive_hint = false, idempotent_hint = true, open_world_hint = false)
    )]
    async fn ssh_jobs(
        &self,
        arguments: JsonObject,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        answer(&self.service, arguments, context, async |request| {
            self.service.jobs(request).await
        })
        .await
    }

    /// List the hosts that jobs can run on; call it first when you don't know a name. With host,
    /// connect to it and report. Example: {"host": "web1"}
    #[tool(
        name = "ssh_hosts",
        title = "List hosts",
        input_schema = input::<HostsRequest>(),
        output_schema = output::<HostsReply>(),
        annotations(read_only_hint = true, destructive_hint = false, idempotent_hint = true, open_world_hint = true)
    )]
    async fn ssh_hosts(
        &self,
        arguments: JsonObject,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        answer(&self.service, arguments, context, async |request| {
            self.service.hosts(request).await
        })
        .await
    }

    /// Read a file of a host, or list a directory or pattern; use it to look before a change.
    /// Example: {"host": "web1", "path": "/etc/nginx/nginx.conf"}
    #[tool(
        name = "ssh_get",
        title = "Read a remote file",
        input_schema = input_without::<GetRequest>(&["become_method"]),
        output_schema = output::<GetReply>(),
        annotations(read_only_hint = true, destructive_hint = false, idempotent_hint = true, open_world_hint = true)
    )]
    async fn ssh_get(
        &self,
        arguments: JsonObject,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        answer(&self.service, arguments, context, async |request| {
            self.service.get(request).await
        })
        .await
    }

    /// Write a file of a host at once, or replace parts of its text (edits). Example: {"host":
    /// "web1", "path": "app.conf", "edits": [{"old": "port 80", "new": "port 8080"}]}
    #[tool(
        name = "ssh_put",
        title = "Write a remote file",
        input_schema = input_without::<PutRequest>(&["become_method"]),
        output_schema = output::<PutReply>(),
        annotations(read_only_hint = false, destructive_hint = true, idempotent_hint = true, open_world_hint = true)
    )]
    async fn ssh_put(
        &self,
        arguments: JsonObject,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        answer(&self.service, arguments, context, async |request| {
            self.service.put(request).await
        })
        .await
    }

    /// Forward a port of this machine through a host to a target there, or list and close
    /// forwards. Example: {"action": "open", "host": "web1", "target": "db:5432"}
    #[tool(
        name = "ssh_forward",
        title = "Forward a port",
        input_schema = input_without::<ForwardRequest>(&["idle_s"]),
        output_schema = output::<ForwardReply>(),
        annotations(read_only_hint = false, destructive_hint = false, idempotent_hint = false, open_world_hint = true)
    )]
    async fn ssh_forward(
        &self,
        arguments: JsonObject,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        answer(&self.service, arguments, context, async |request| {
            self.service.forward(request).await
        })
        .await
    }

    /// Delete a finished job, or only its output, to free memory. A running job is refused unless
    /// force kills it. Example: {"job_id": "web1-7f3k9q2m"}
    #[tool(
        name = "ssh_forget",
        title = "Forget a job",
        input_schema = input::<ForgetRequest>(),
        output_schema = output::<ForgetReply>(),
        annotations(read_only_hint = false, destructive_hint = true, idempotent_hint = false, open_world_hint = false)
    )]
    async fn ssh_forget(
        &self,
        arguments: JsonObject,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        answer(&self.service, arguments, context, async |request| {
            self.service.forget(request).await
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sshjobs_core::jobs::{Access, Caller, Config, Rights};

    fn server(role: Role) -> McpServer {
        let config = Config {
            store: false,
            ..Config::default()
        };
        let service =
            Service::new(config, Access::Listed).of(Caller::local(), Rights::everywhere(role));
        McpServer::new(Arc::new(service), Arc::default())
    }

    #[tokio::test]
    async fn who_may_only_look_is_shown_no_tool_that_acts() {
        let names = |role| {
            let tools = server(role).tool_router.list_all();
            tools.into_iter().map(|tool| tool.name.into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(
            names(Role::Read),
            [
                "ssh_hosts",
                "ssh_jobs",
                "ssh_read",
                "ssh_search",
                "ssh_tail",
                "ssh_wait"
            ]
        );
        assert_eq!(names(Role::Run).len(), 14);
        assert_eq!(names(Role::Admin), names(Role::Run));
    }

    #[tokio::test]
    async fn the_schemas_of_the_tools_are_what_they_were() {
        for tool in server(Role::Run).tool_router.list_all() {
            insta::assert_json_snapshot!(tool.name.to_string(), tool);
        }
    }

    #[tokio::test]
    async fn every_tool_keeps_to_the_form_that_all_clients_take() {
        let tools = McpServer::tool_router().list_all();
        assert_eq!(tools.len(), 14);
        for tool in tools {
            let name = &tool.name;
            assert!(tool.title.is_some(), "{name} has no title");
            let description = tool.description.as_deref().unwrap_or_default();
            assert!(
                (80..600).contains(&description.len()),
                "{name}: {} bytes",
                description.len()
            );
            let hints = tool.annotations.as_ref().expect("hints");
            assert!(
                hints.read_only_hint.is_some()
                    && hints.destructive_hint.is_some()
                    && hints.idempotent_hint.is_some()
                    && hints.open_world_hint.is_some(),
                "{name} lacks a hint"
            );
            let input = serde_json::to_string(&tool.input_schema).unwrap();
            for word in ["$ref", "anyOf", "oneOf", "\"null\""] {
                assert!(
                    !input.contains(word),
                    "{name}'s input schema has {word}: {input}"
                );
            }
            assert_eq!(
                tool.input_schema.get("additionalProperties"),
                Some(&serde_json::Value::Bool(false))
            );
            let output =
                serde_json::to_string(tool.output_schema.as_ref().expect("output schema")).unwrap();
            assert!(
                !output.contains("$ref") && output.contains("\"type\":\"object\""),
                "{name}: {output}"
            );
        }
        for role in [Role::Read, Role::Run] {
            let instructions = server(role).instructions();
            assert!(instructions.len() < 2048, "{}", instructions.len());
            assert_eq!(instructions.contains("ssh_spawn"), role == Role::Run);
        }
    }

    #[test]
    fn the_tools_cost_a_model_few_tokens() {
        let counter = tiktoken_rs::o200k_base().unwrap();
        let count = |text: &str| counter.encode_ordinary(text).len();
        let mut inputs = 0;
        let mut outputs = 0;
        for mut tool in McpServer::tool_router().list_all() {
            let output = tool.output_schema.take().expect("an output schema");
            let input = count(&serde_json::to_string(&tool).unwrap());
            let output = count(&serde_json::to_string(&output).unwrap());
            println!("{}: {input} and {output} tokens", tool.name);
            inputs += input;
            outputs += output;
        }
        println!("{inputs} and {outputs} tokens");
        assert!(
            inputs <= 4700,
            "names, descriptions and inputs: {inputs} tokens"
        );
        assert!(outputs <= 2700, "output schemas: {outputs} tokens");
    }
}

//! The MCP server and its tools, one for each verb. Their texts are in `tools/table.rs`, and the other
//! requests are handled in `handler.rs`. All work is done by the service.

use std::sync::Arc;

use futures_util::FutureExt;
use http::request::Parts;
use rmcp::RoleServer;
use rmcp::handler::server::router::tool::{ToolRoute, ToolRouter};
use rmcp::handler::server::tool::ToolCallContext;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ErrorData, Extensions, Tool, ToolAnnotations,
};
use rmcp::service::RequestContext;
use schemars::JsonSchema;
use serde_json::json;

use crate::app::{LOG_APP, ui_meta};
use crate::ask::Elicitor;
use crate::resources::Subscriptions;
use crate::tools::{
    Parked, Tasks, ToolCall, ToolText, answer, answered, input_without, output, tasks,
};
use sshjobs_core::jobs::{Role, nearest};
use sshjobs_wire::{Repeat, Service, WireRequest, for_each_verb};

/// The MCP server: a thin face over the service.
#[derive(Clone)]
pub(super) struct McpServer {
    pub(super) service: Arc<Service>,
    pub(super) tool_router: Arc<ToolRouter<Self>>,
    pub(super) subscriptions: Arc<Subscriptions>,
    pub(super) tasks: Arc<Tasks>,
    pub(super) elicitor: Arc<Elicitor>,
    pub(super) options: McpOptions,
    /// Calls whose clients are asking a person.
    pub(super) parked: Arc<Parked<ToolCall>>,
}

/// Options of the server for its clients.
#[derive(Clone, Copy, Debug, Default)]
pub struct McpOptions {
    /// The tools.
    pub tools: ToolSet,
    /// Whether events of jobs are sent as messages that wake an agent (`claude/channel`).
    pub has_channel: bool,
}

/// A choice of tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolSet {
    /// All tools.
    #[default]
    All,
    /// The six that most sessions need: for clients that put every tool before their model.
    Core,
}

impl ToolSet {
    fn has(self, verb: &str) -> bool {
        const CORE: [&str; 6] = ["hosts", "run", "signal", "spawn", "tail", "write"];
        let is_tool = ToolText::of(verb).is_some();
        is_tool && (self == Self::All || CORE.contains(&verb))
    }
}

/// Start of the name of each tool; its verb follows.
const PREFIX: &str = "ssh_";

/// Tools whose result clients may show as a live log.
const SHOW_LOG: [&str; 2] = ["ssh_spawn", "ssh_run"];

macro_rules! tool_routes {
    ($($verb:ident: $request:ty => $reply:ty, $role:ident, $repeat:ident, $summary:literal;)*) => {
        /// The tools that a caller of this role may use.
        fn tool_router(role: Role, tools: ToolSet) -> ToolRouter<McpServer> {
            let mut router = ToolRouter::new();
            $(if role >= Role::$role && tools.has(stringify!($verb)) {
                let tool = describe::<$request, $reply>(stringify!($verb), Repeat::$repeat);
                router.add_route(ToolRoute::new_dyn(tool, |call: ToolCallContext<'_, McpServer>| {
                    async move {
                        let arguments = call.arguments.unwrap_or_default();
                        let service = &call.service.service;
                        let answered = answer(service, arguments, call.request_context, async |request| {
                            service.$verb(request).await
                        });
                        Ok(answered.await.into())
                    }
                    .boxed()
                }));
            })*
            router
        }
    };
}

for_each_verb!(tool_routes);

/// The tool of a verb, as a model reads it.
fn describe<Request: WireRequest, Reply: JsonSchema>(verb: &str, repeat: Repeat) -> Tool {
    let text = ToolText::of(verb).expect("each verb has its texts");
    let input = input_without::<Request>(text.hidden);
    let hints = ToolAnnotations::new()
        .read_only(repeat == Repeat::Safe)
        .destructive(text.is_destructive)
        .idempotent(text.is_idempotent)
        .open_world(text.reaches_hosts);
    Tool::new(format!("{PREFIX}{verb}"), text.description, input)
        .with_title(text.title)
        .with_raw_output_schema(output::<Reply>())
        .with_annotations(hints)
}

impl McpServer {
    pub(super) fn new(service: Arc<Service>, elicitor: Arc<Elicitor>, options: McpOptions) -> Self {
        let tool_router = tool_router(service.library().rights().role, options.tools);
        Self {
            service,
            tool_router: Arc::new(tool_router),
            subscriptions: Arc::default(),
            tasks: Arc::default(),
            elicitor,
            options,
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
            // `from` of ssh_put stays: it may be HOST:PATH, too.
            if tool.name != "ssh_get" {
                continue;
            }
            let mut schema = (*tool.input_schema).clone();
            let properties = schema.get_mut("properties").and_then(|all| all.as_object_mut());
            if let Some(properties) = properties {
                properties.remove("to");
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
        if !may_ask(&request.name, &context) {
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
        mut request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if request.name == "ssh_jobs" {
            // Models want the jobs that run, and each entry of the list costs tokens.
            let arguments = request.arguments.get_or_insert_default();
            arguments.insert("running_first".to_owned(), true.into());
        }
        let knows_tasks = context.client_capabilities().is_some_and(|can| can.supports_tasks());
        if !knows_tasks || !matches!(&*request.name, tasks::RUN | tasks::TAIL | tasks::WAIT) {
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
}

/// Whether a call can pass a login's questions to its client.
fn may_ask(tool: &str, context: &RequestContext<RoleServer>) -> bool {
    let reaches_hosts = tool
        .strip_prefix(PREFIX)
        .and_then(ToolText::of)
        .is_some_and(|text| text.reaches_hosts);
    let can = context.client_capabilities().and_then(|can| can.elicitation);
    reaches_hosts && can.is_some_and(|can| can.url.is_some())
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
        McpServer::new(Arc::new(service), Arc::default(), McpOptions::default())
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
        assert_eq!(names(Role::Run).len(), 15);
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
        let tools = tool_router(Role::Admin, ToolSet::All).list_all();
        assert_eq!(tools.len(), 15);
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
        for (set, most_input, most_output) in
            [(ToolSet::All, 4700, 2700), (ToolSet::Core, 2200, 1100)]
        {
            let (input, output) = tokens(set);
            println!("{set:?}: {input} and {output} tokens");
            assert!(
                input <= most_input,
                "names, descriptions and inputs: {input} tokens"
            );
            assert!(output <= most_output, "output schemas: {output} tokens");
        }
    }

    /// Tokens of the tools: of names, descriptions and inputs, and of output schemas.
    fn tokens(set: ToolSet) -> (usize, usize) {
        let counter = tiktoken_rs::o200k_base().unwrap();
        let count = |text: &str| counter.encode_ordinary(text).len();
        let (mut inputs, mut outputs) = (0, 0);
        for mut tool in tool_router(Role::Admin, set).list_all() {
            let output = tool.output_schema.take().expect("an output schema");
            let input = count(&serde_json::to_string(&tool).unwrap());
            let output = count(&serde_json::to_string(&output).unwrap());
            println!("{}: {input} and {output} tokens", tool.name);
            inputs += input;
            outputs += output;
        }
        (inputs, outputs)
    }
}

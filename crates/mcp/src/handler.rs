//! The server's description of itself, and the requests of the protocol that are not verbs:
//! prompts, resources, subscriptions and tasks.

use std::borrow::Cow;
use std::collections::BTreeMap;

use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams,
    CompleteResult, ErrorData, GetPromptRequestParams, GetPromptResponse, GetSkillRequestParams,
    GetSkillResult, GetTaskParams, GetTaskResult, Icon, Implementation, JsonObject,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListSkillsResult,
    ListToolsResult, PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResponse, ServerCapabilities, ServerConfig, SubscribeRequestParams,
    SubscriptionFilter, UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler, tool_handler};

use super::prompts;
use super::server::McpServer;
use crate::channel;
use crate::resources::{resources, subscriptions};
use crate::skill;
use crate::tools::answered;
use sshjobs_wire::Service;

/// First sentence of the instructions.
const PURPOSE: &str =
    "Runs commands on remote hosts over SSH as jobs, and follows their output by cursor.";
/// First steps of a caller that may run commands, and of one that may only read.
const START: &str = "ssh_hosts lists the hosts. ssh_look looks and changes nothing. For a quick command \
    use ssh_run. For anything longer start a job, wait for it and search its output:\n\n    \
    job = ssh_spawn(host=\"web1\", command=\"make test\")[\"job_id\"]";
const LOOK: &str =
    "You may read but not start jobs: ssh_jobs lists the jobs. Read one like this:\n";
/// The loop that loses nothing.
const FOLLOW: &str = include_str!("instructions.md");
/// Answering and ending programs.
const ACT: &str = include_str!("instructions-act.md");
const OUTCOMES: &str = "state distinguishes exited, signaled, lost (connection lost), closed, \
    refused and timed_out; a command that fails is not an error. Errors read `code: message \
    (hint)`; do what the hint says.";

/// The program's icon: a shell prompt.
const ICON: &str = "data:image/svg+xml;base64,\
    PHN2ZyB4bWxucz0naHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmcnIHZpZXdCb3g9JzAgMCAyNCAyNCc+PHJlY3Qgd2lkdGg9JzI0JyBoZWlnaH\
    Q9JzI0JyByeD0nNScgZmlsbD0nIzEyMycvPjxwYXRoIGQ9J001IDdsNSA1LTUgNU0xMiAxOGg3JyBmaWxsPSdub25lJyBzdHJva2U9JyM3ZmQn\
    IHN0cm9rZS13aWR0aD0nMi40Jy8+PC9zdmc+";

impl McpServer {
    /// Instructions for models before their first call, according to the caller's role.
    pub(super) fn instructions(&self) -> String {
        let acts = self.tool_router.has_route("ssh_spawn");
        let start = if acts { START } else { LOOK };
        let act = if acts { ACT } else { "" };
        format!("{PURPOSE}\n\n{start}\n{FOLLOW}{act}{OUTCOMES}")
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let can = ServerCapabilities::builder()
            .enable_tools()
            .enable_prompts()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_resources_list_changed()
            .enable_completions()
            .enable_tasks()
            .enable_skills();
        let mut can = can.build();
        if self.options.has_channel {
            let channel = (channel::CAPABILITY.to_owned(), JsonObject::new());
            can.experimental = Some(BTreeMap::from([channel]));
        }
        let icon = Icon::new(ICON)
            .with_mime_type("image/svg+xml")
            .with_sizes(vec!["any".to_owned()]);
        let own = Implementation::new("sshjobs", env!("CARGO_PKG_VERSION")).with_title("sshjobs");
        ServerConfig::new(can)
            .with_server_info(own.with_icons(vec![icon]))
            .with_instructions(self.instructions())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        answered(self.call_any(request, context)).await
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut listed = ListToolsResult::with_all_items(self.tools());
        if context
            .protocol_version()
            .is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
        {
            // Lists depend on the caller's rights.
            (listed.ttl_ms, listed.cache_scope) = (Some(0), Some(CacheScope::Private));
        }
        Ok(listed)
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(prompts::list(self.role()))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        answered(async { Ok(prompts::get(self.role(), &request)?.into()) }).await
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let server = self.for_request(&context.extensions);
        answered(resources::list(&server.service)).await
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(resources::templates())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let server = self.for_request(&context.extensions);
        answered(async { Ok(resources::read(&server.service, &request.uri).await?.into()) }).await
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let server = self.for_request(&context.extensions);
        answered(resources::complete(&server.service, request)).await
    }

    /// Used by clients of revisions before 2026-07-28.
    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let server = self.for_request(&context.extensions);
        answered(self.subscriptions.add(server.service, request.uri, context.peer)).await
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let server = self.for_request(&context.extensions);
        if self.options.has_channel {
            let service = Service::clone(&server.service);
            let announcing = channel::announce_events(service, context.peer.clone());
            self.subscriptions.add_task(announcing);
        }
        self.subscriptions.watch_list(server.service, context.peer);
    }

    async fn list_skills(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListSkillsResult, ErrorData> {
        Ok(ListSkillsResult::with_all_items(vec![skill::skill()]))
    }

    async fn get_skill(
        &self,
        request: GetSkillRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetSkillResult, ErrorData> {
        let skill = skill::skill();
        if skill.uri != request.uri {
            return Err(ErrorData::invalid_params("no skill has this URI", None));
        }
        Ok(GetSkillResult::new(skill))
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.subscriptions.remove(&request.uri);
        Ok(())
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let server = self.for_request(&context.extensions);
        answered(self.tasks.get(&server.service, &request.task_id)).await
    }

    async fn update_task(
        &self,
        _request: UpdateTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Err(ErrorData::invalid_params(
            "no task here asks for input",
            None,
        ))
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let server = self.for_request(&context.extensions);
        answered(self.tasks.cancel(&server.service, &request.task_id)).await
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let uris = requested.resource_subscriptions.iter().flatten().cloned();
        let accepted = SubscriptionFilter::builder().resource_subscriptions(uris);
        let is_about_list = requested.resources_list_changed == Some(true);
        Some(
            if is_about_list {
                accepted.resources_list_changed()
            } else {
                accepted
            }
            .build(),
        )
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let server = self.for_request(&context.request_context().extensions);
        answered(subscriptions::listen(&server.service, context)).await
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS)
    }
}

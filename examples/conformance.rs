//! The fixtures that MCP's conformance suite expects, on this project's HTTP server: the suite then
//! tries the server with calls that none of our tools makes. `conformance ADDR:PORT` serves them at
//! /mcp until it is killed; `make test-clients` does that.

#![allow(
    deprecated,
    clippy::print_stderr,
    reason = "the suite tests deprecated features, too; the address is printed to stderr"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities,
    CompleteRequestParams, CompleteResult, ContentBlock, ErrorData, GetPromptRequestParams,
    GetPromptResponse, GetPromptResult, InputRequest, InputRequiredResult, JsonObject,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ProgressNotificationParam, Prompt, PromptMessage,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Resource,
    ResourceContents, ResourceTemplate, Role, ServerCapabilities, ServerConfig,
    SubscribeRequestParams, Tool, UnsubscribeRequestParams,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler};
use serde_json::{Value, json};
use sshjobs_core::jobs::{Access, Config};
use sshjobs_http::{HttpServer, Mount, ServerOptions};
use sshjobs_wire::Service;
use tokio_util::sync::CancellationToken;

const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
const WAV: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=";
/// Pause between two notifications.
const PAUSE: Duration = Duration::from_millis(50);

/// The tools, besides those whose input has a schema of its own.
const TOOLS: [&str; 21] = [
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_error_handling",
    "test_tool_with_progress",
    "test_sampling",
    "test_elicitation",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
    "test_missing_capability",
    "test_streaming_elicitation",
    "test_logging_tool",
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_input_required_result_tampered_state",
];
const CAPABILITIES: &str = "test_input_required_result_capabilities";

#[derive(Clone)]
struct Fixtures;

type Answer = Result<CallToolResponse, ErrorData>;

fn object(value: Value) -> JsonObject {
    let Value::Object(object) = value else {
        unreachable!("the fixtures are objects")
    };
    object
}

/// Fixtures are written as the JSON that goes over the wire.
fn from_json<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value)
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

fn text(text: impl Into<String>) -> Answer {
    Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
}

fn content(blocks: Value) -> Answer {
    Ok(CallToolResult::success(from_json(blocks)?).into())
}

fn elicitation(message: &str, properties: Value) -> Value {
    let required: Vec<&String> =
        properties.as_object().into_iter().flat_map(|all| all.keys()).collect();
    let schema = json!({"type": "object", "properties": properties, "required": required});
    json!({"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}})
}

fn sampling(question: &str) -> Value {
    let message = json!({"role": "user", "content": {"type": "text", "text": question}});
    json!({"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": 100}})
}

fn ask<const N: usize>(
    questions: [(&str, Value); N],
    state: Option<&str>,
) -> Result<InputRequiredResult, ErrorData> {
    let mut requests: BTreeMap<String, InputRequest> = BTreeMap::new();
    for (key, question) in questions {
        requests.insert(key.to_owned(), from_json(question)?);
    }
    Ok(InputRequiredResult::new(
        Some(requests),
        state.map(str::to_owned),
    ))
}

fn roots() -> Value {
    json!({"method": "roots/list"})
}

/// The name that a person has given, when that is one.
fn name_in(request: &CallToolRequestParams) -> Option<String> {
    let answer = request.input_responses.as_ref()?.get("user_name")?;
    (answer["action"] == "accept").then(|| answer["content"]["name"].as_str().map(str::to_owned))?
}

impl Fixtures {
    /// The tools that answer at once.
    fn plain(name: &str) -> Option<Answer> {
        let resource = |uri: &str| json!({"type": "resource", "resource": {"uri": uri, "mimeType": "text/plain", "text": "Embedded."}});
        let image = json!({"type": "image", "data": PNG, "mimeType": "image/png"});
        Some(match name {
            "test_simple_text" | "test_streaming_elicitation" | "test_logging_tool" => {
                text("A simple text.")
            }
            "test_image_content" => content(json!([image])),
            "test_audio_content" => {
                content(json!([{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]))
            }
            "test_embedded_resource" => content(json!([resource("test://embedded-resource")])),
            "test_multiple_content_types" => content(
                json!([{"type": "text", "text": "Several:"}, image, resource("test://mixed")]),
            ),
            "test_error_handling" => Ok(CallToolResult::error(vec![ContentBlock::text(
                "This tool fails on purpose.",
            )])
            .into()),
            _ => return None,
        })
    }

    /// The tools that ask the client by an answer (revision 2026-07-28).
    fn asking(request: &CallToolRequestParams) -> Option<Answer> {
        let (has_answers, state) = (
            request.input_responses.is_some(),
            request.request_state.as_deref(),
        );
        let name = request.name.strip_prefix("test_input_required_result_")?;
        let question =
            |key: &'static str| elicitation("What is it?", json!({key: {"type": "string"}}));
        let confirm = elicitation("Is it so?", json!({"ok": {"type": "boolean"}}));
        let asked = match (name, state) {
            ("elicitation", _) => match name_in(request) {
                Some(name) => return Some(text(format!("Hello, {name}!"))),
                None => ask([("user_name", question("name"))], None),
            },
            ("capabilities", _) if !has_answers => ask(
                [("capital", sampling("What is the capital of France?"))],
                None,
            ),
            ("sampling", _) if !has_answers => ask(
                [("capital", sampling("What is the capital of France?"))],
                None,
            ),
            ("list_roots", _) if !has_answers => ask([("client_roots", roots())], None),
            ("request_state", None) => ask([("confirm", confirm)], Some("begun")),
            ("tampered_state", None) => ask([("confirm", confirm)], Some("sealed")),
            ("tampered_state", Some(state)) if state != "sealed" => {
                return Some(Err(ErrorData::invalid_params(
                    "the request state is not ours",
                    None,
                )));
            }
            ("multiple_inputs", None) => {
                let questions = [
                    ("user_name", question("name")),
                    ("greeting", sampling("Greet.")),
                    ("client_roots", roots()),
                ];
                ask(questions, Some("asked"))
            }
            ("multi_round", None) => ask([("step1", question("name"))], Some("1")),
            ("multi_round", Some("1")) => ask([("step2", question("color"))], Some("2")),
            _ => return Some(text("It is complete.")),
        };
        Some(asked.map(CallToolResponse::from))
    }

    /// The tools that talk with the client while they run.
    async fn talking(
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Answer {
        let string = |key: &str| {
            request
                .arguments
                .as_ref()
                .and_then(|all| all.get(key)?.as_str())
                .unwrap_or_default()
        };
        match &*request.name {
            "test_tool_with_progress" => {
                if let Some(token) = context.meta.get_progress_token() {
                    for progress in [0.0, 50.0, 100.0] {
                        let told = ProgressNotificationParam::new(token.clone(), progress)
                            .with_total(100.0);
                        // A client that has disconnected gets nothing.
                        context.peer.notify_progress(told).await.ok();
                        tokio::time::sleep(PAUSE).await;
                    }
                }
                text("The work is done.")
            }
            "test_missing_capability" => {
                if context.client_capabilities().is_some_and(|can| can.sampling.is_some()) {
                    return text("The client can sample.");
                }
                let needed = ClientCapabilities::builder().enable_sampling().build();
                Err(ErrorData::missing_required_client_capability(needed))
            }
            "test_sampling" => {
                let asked = from_json(sampling(string("prompt"))["params"].take())?;
                let answer = context.peer.create_message(asked).await;
                let answer =
                    answer.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
                text(format!("The client says: {}", json!(answer)))
            }
            "test_elicitation" => {
                let wanted = json!({"username": {"type": "string"}, "email": {"type": "string"}});
                Self::elicit(context, string("message"), wanted).await
            }
            "test_elicitation_sep1034_defaults" => {
                Self::elicit(context, "With defaults", defaults()).await
            }
            "test_elicitation_sep1330_enums" => {
                Self::elicit(context, "With choices", enums()).await
            }
            name => Err(ErrorData::invalid_params(
                format!("no tool is called {name:?}"),
                None,
            )),
        }
    }

    async fn elicit(
        context: &RequestContext<RoleServer>,
        message: &str,
        properties: Value,
    ) -> Answer {
        let asked = from_json(elicitation(message, properties)["params"].take())?;
        let answer = context.peer.create_elicitation(asked).await;
        let answer = answer.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        text(format!("The person says: {}", json!(answer)))
    }
}

fn defaults() -> Value {
    json!({
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": true},
    })
}

fn enums() -> Value {
    let titled = |name: &str| json!([{"const": format!("{name}1"), "title": "First"}, {"const": format!("{name}2"), "title": "Second"}]);
    let options = json!(["option1", "option2", "option3"]);
    json!({
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled("value")},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["First", "Second"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled("value")}},
    })
}

/// A schema with keywords of JSON Schema 2020-12 that must arrive as they are.
fn schema_2020_12() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false,
    })
}

fn tools() -> Vec<Tool> {
    let tool = |name: &'static str, schema: Value| {
        Tool::new(
            name,
            "A fixture of the conformance suite",
            Arc::new(object(schema)),
        )
    };
    let header = json!({"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}, "required": ["region"]});
    let plain = TOOLS
        .into_iter()
        .chain([CAPABILITIES])
        .map(|name| tool(name, json!({"type": "object"})));
    plain
        .chain([
            tool("json_schema_2020_12_tool", schema_2020_12()),
            tool("test_custom_header", header),
        ])
        .collect()
}

impl ServerHandler for Fixtures {
    fn get_info(&self) -> ServerConfig {
        let can = ServerCapabilities::builder()
            .enable_tools()
            .enable_prompts()
            .enable_resources()
            .enable_completions();
        ServerConfig::new(can.build())
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools().into_iter().find(|tool| tool.name == name)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Answer {
        if let "json_schema_2020_12_tool" | "test_custom_header" = &*request.name {
            return text("It is well.");
        }
        match Self::plain(&request.name).or_else(|| Self::asking(&request)) {
            Some(answer) => answer,
            None => Self::talking(&request, &context).await,
        }
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let prompts = [
            json!({"name": "test_simple_prompt"}),
            json!({"name": "test_prompt_with_arguments", "arguments": [{"name": "arg1", "required": true}, {"name": "arg2", "required": true}]}),
            json!({"name": "test_prompt_with_embedded_resource", "arguments": [{"name": "resourceUri", "required": true}]}),
            json!({"name": "test_prompt_with_image"}),
            json!({"name": "test_input_required_result_prompt"}),
        ];
        let prompts = prompts.into_iter().map(|mut prompt| {
            prompt["description"] = "A fixture of the conformance suite".into();
            from_json::<Prompt>(prompt)
        });
        Ok(ListPromptsResult::with_all_items(
            prompts.collect::<Result<_, _>>()?,
        ))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let argument = |name: &str| {
            request
                .arguments
                .as_ref()
                .and_then(|all| all.get(name)?.as_str())
                .unwrap_or_default()
                .to_owned()
        };
        let message = |content: Value| {
            from_json::<PromptMessage>(json!({"role": "user", "content": content}))
        };
        let messages = match &*request.name {
            "test_simple_prompt" => vec![PromptMessage::new_text(Role::User, "A simple prompt.")],
            "test_prompt_with_arguments" => {
                let text = format!("arg1={:?}, arg2={:?}", argument("arg1"), argument("arg2"));
                vec![PromptMessage::new_text(Role::User, text)]
            }
            "test_prompt_with_embedded_resource" => {
                let resource = json!({"uri": argument("resourceUri"), "mimeType": "text/plain", "text": "Embedded."});
                vec![message(json!({"type": "resource", "resource": resource}))?]
            }
            "test_prompt_with_image" => {
                vec![message(
                    json!({"type": "image", "data": PNG, "mimeType": "image/png"}),
                )?]
            }
            "test_input_required_result_prompt" if request.input_responses.is_none() => {
                let question = elicitation("About what?", json!({"context": {"type": "string"}}));
                return Ok(ask([("user_context", question)], None)?.into());
            }
            "test_input_required_result_prompt" => {
                vec![PromptMessage::new_text(Role::User, "With the context.")]
            }
            name => {
                return Err(ErrorData::invalid_params(
                    format!("no prompt is called {name:?}"),
                    None,
                ));
            }
        };
        Ok(GetPromptResult::new(messages).into())
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let all = [
            ("test://static-text", "text"),
            ("test://static-binary", "binary"),
            ("test://watched-resource", "watched"),
        ];
        Ok(ListResourcesResult::with_all_items(
            all.map(|(uri, name)| Resource::new(uri, name)).into(),
        ))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(vec![
            ResourceTemplate::new("test://template/{id}/data", "data"),
        ]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri.as_str();
        let id = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
        let contents = match (uri, id) {
            ("test://static-text" | "test://watched-resource", _) => {
                ResourceContents::text("A static text.", uri).with_mime_type("text/plain")
            }
            ("test://static-binary", _) => {
                ResourceContents::blob(PNG, uri).with_mime_type("image/png")
            }
            (_, Some(id)) => ResourceContents::text(json!({"id": id}).to_string(), uri)
                .with_mime_type("application/json"),
            _ => {
                return Err(ErrorData::resource_not_found(
                    "there is no such resource",
                    Some(json!({"uri": uri})),
                ));
            }
        };
        Ok(ReadResourceResult::new(vec![contents]).into())
    }

    async fn subscribe(
        &self,
        _request: SubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Ok(CompleteResult::default())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).ok_or("name an address to listen on")?.parse()?;
    let closing = CancellationToken::new();
    // The server has checked Host and Origin before it hands a request over.
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_cancellation_token(closing.clone());
    let fixtures = StreamableHttpService::new(
        || Ok(Fixtures),
        Arc::new(LocalSessionManager::default()),
        config,
    );
    let mount = Mount::new("/mcp", move |request| {
        let fixtures = fixtures.clone();
        async move { fixtures.handle(request).await }
    });
    let options = ServerOptions {
        address: Some(address),
        ..ServerOptions::default()
    };
    let server = HttpServer::bind(options).await?;
    let service = Service::new(
        Config {
            store: false,
            ..Config::default()
        },
        Access::Listed,
    );
    eprintln!("listening on {}", server.addresses());
    server.serve(service, vec![mount], closing, std::future::pending()).await?;
    Ok(())
}

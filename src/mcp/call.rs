use std::sync::Arc;

use http::request::Parts;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ElicitRequest, ElicitRequestParams, ElicitationAction,
    ErrorData, InputRequest, InputRequests, InputRequiredResult, ProtocolVersion,
};
use rmcp::service::RequestContext;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::elicitor::{Address, Asked, Asker, Elicitor};
use crate::wire::ReachedAt;

pub(super) type Answered = Result<CallToolResponse, ErrorData>;

/// A tool call that may have to log in to a host, and puts what the login asks to its client.
///
/// Clients of revision 2026-07-28 are given the question as an answer and come back (`InputRequiredResult`); the call goes on
/// meanwhile. Those of earlier ones are asked while they wait (`elicitation/create`). Dropping it ends the call.
pub(super) struct Call {
    running: JoinSet<Answered>,
    _asker: Asker,
}

/// The tools that log in to hosts.
const LOG_IN: [&str; 4] = ["ssh_hosts", "ssh_run", "ssh_signal", "ssh_spawn"];

/// Whether questions of a login can be put to the client with this call.
pub(super) fn can_ask(tool: &str, context: &RequestContext<RoleServer>) -> bool {
    let can = context.client_capabilities().and_then(|can| can.elicitation);
    LOG_IN.contains(&tool) && can.is_some_and(|can| can.url.is_some())
}

impl Call {
    /// Begins a call: `made` is what it does, within a context that outlives the request.
    pub(super) fn begin<F: Future<Output = Answered> + Send + 'static>(
        elicitor: &Arc<Elicitor>,
        context: &RequestContext<RoleServer>,
        made: impl FnOnce(RequestContext<RoleServer>) -> F,
    ) -> Self {
        let (mut running, mut own) = (JoinSet::new(), context.clone());
        own.ct = CancellationToken::new();
        running.spawn(made(own));
        Self { running, _asker: elicitor.asker() }
    }

    /// The call that a client comes back to, after a person was asked.
    pub(super) fn resume(
        elicitor: &Elicitor,
        request: &CallToolRequestParams,
    ) -> Result<Option<Self>, ErrorData> {
        let Some(state) = &request.request_state else { return Ok(None) };
        let call = elicitor.parked.take(state);
        let call = call.ok_or_else(|| ErrorData::invalid_params("this call is over; make it again", None))?;
        let is_no = |answer: &Value| answer["action"].as_str().is_none_or(|action| action != "accept");
        for (question, _) in request.input_responses.iter().flatten().filter(|(_, answer)| is_no(answer)) {
            elicitor.decline(question);
        }
        Ok(Some(call))
    }

    /// Waits for the call's result, or for a question.
    pub(super) async fn attend(
        mut self,
        elicitor: &Elicitor,
        context: &RequestContext<RoleServer>,
    ) -> Answered {
        loop {
            let question = tokio::select! {
                biased;
                answered = self.answered() => return answered,
                () = context.ct.cancelled() => return Err(cancelled()),
                question = elicitor.question() => question,
            };
            let Some(url) = question.url(context) else {
                question.declined.cancel();
                continue;
            };
            if context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28) {
                let asks = InputRequests::from([(question.id.clone(), question.request(url))]);
                return Ok(InputRequiredResult::new(Some(asks), Some(elicitor.parked.put(self))).into());
            }
            tokio::select! {
                biased;
                answered = self.answered() => return answered,
                () = context.ct.cancelled() => {
                    question.declined.cancel();
                    return Err(cancelled());
                }
                () = elicitor.is_over(&question) => {}
                action = context.peer.elicit_url(question.message(), url, question.id.clone()) => match action {
                    // The page was opened, or will be.
                    Ok(ElicitationAction::Accept) => {}
                    Ok(_) => question.declined.cancel(),
                    Err(error) => {
                        tracing::warn!(%error, "the client can't show a question");
                        question.declined.cancel();
                    }
                },
            }
        }
    }

    async fn answered(&mut self) -> Answered {
        match self.running.join_next().await {
            Some(Ok(answered)) => answered,
            Some(Err(_)) | None => Err(ErrorData::internal_error("the call has failed", None)),
        }
    }
}

fn cancelled() -> ErrorData {
    ErrorData::internal_error("the call was cancelled", None)
}

impl Asked {
    fn message(&self) -> String {
        format!(
            "To log in to {}, sshjobs has a question for you. The page takes your answer; it does not go through this client.",
            self.host
        )
    }

    fn request(&self, url: Url) -> InputRequest {
        // The revision that this is for knows no ids.
        InputRequest::Elicitation(ElicitRequest::new(ElicitRequestParams::UrlElicitationParams {
            meta: None,
            message: self.message(),
            url: url.into(),
            elicitation_id: String::new(),
        }))
    }

    fn url(&self, context: &RequestContext<RoleServer>) -> Option<Url> {
        match &self.address {
            Address::Here(url) => Url::parse(url).ok(),
            Address::Below(path) => {
                let request = context.extensions.get::<Parts>()?;
                let ReachedAt(base) = request.extensions.get::<ReachedAt>()?;
                Url::parse(&format!("{base}{path}")).ok()
            }
        }
    }
}

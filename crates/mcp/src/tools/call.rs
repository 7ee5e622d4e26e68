//! A tool call that may ask a person, for both ways in which clients support that.

use std::sync::Arc;

use http::request::Parts;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ElicitRequest, ElicitRequestParams, ElicitationAction,
    ErrorData, InputRequest, InputRequests, InputRequiredResult, JsonObject, ProtocolVersion,
};
use rmcp::service::RequestContext;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::parked::{Parked, Shared};
use crate::ask::{AskedQuestion, Asker, Elicitor, PageAddress};
use sshjobs_wire::ReachedAt;

pub(crate) type Answered = Result<CallToolResponse, ErrorData>;

/// A tool call that may log in to a host, and passes the login's questions to its client.
///
/// For clients of revision 2026-07-28, the question is the result, and they call again
/// (`InputRequiredResult`); the call continues meanwhile. Earlier clients are asked while they wait
/// (`elicitation/create`). Dropping it ends the call.
pub(crate) struct ToolCall {
    running: JoinSet<Answered>,
    /// The tool and its arguments.
    asked_for: (String, Option<JsonObject>),
    /// Questions that its client has already received.
    known: Vec<String>,
    _asker: Asker,
}

impl ToolCall {
    /// Starts a call: `made` performs it, in a context that outlives the request.
    pub(crate) fn begin<F: Future<Output = Answered> + Send + 'static>(
        elicitor: &Arc<Elicitor>,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
        made: impl FnOnce(CallToolRequestParams, RequestContext<RoleServer>) -> F,
    ) -> Shared<Self> {
        let mut running = JoinSet::new();
        let mut own = context.clone();
        // Not the request's token: the call continues after a request that got a question.
        own.ct = CancellationToken::new();
        let asked_for = (request.name.to_string(), request.arguments.clone());
        // Register first, so that the login finds someone to ask.
        let asker = elicitor.asker();
        running.spawn(made(request, own));
        Arc::new(tokio::sync::Mutex::new(Self {
            running,
            asked_for,
            known: Vec::new(),
            _asker: asker,
        }))
    }

    /// Finds the call to which a client returns after it has asked a person.
    pub(crate) async fn resume(
        (elicitor, parked): (&Elicitor, &Parked<Self>),
        request: &CallToolRequestParams,
    ) -> Result<Option<Shared<Self>>, ErrorData> {
        let Some(state) = &request.request_state else { return Ok(None) };
        let call = parked.get(state);
        let call = call
            .ok_or_else(|| ErrorData::invalid_params("this call is over; make it again", None))?;
        // Before the lock, which an earlier request may hold while it waits for this answer.
        for (question, _) in request
            .input_responses
            .iter()
            .flatten()
            .filter(|(_, answer)| is_refusal(answer))
        {
            elicitor.decline(question);
        }
        let asked_for = (request.name.to_string(), request.arguments.clone());
        if call.lock().await.asked_for != asked_for {
            return Err(ErrorData::invalid_params(
                "the state belongs to a call with other arguments",
                None,
            ));
        }
        Ok(Some(call))
    }

    /// Waits for a call's result, or for a question. Dropping this ends a call to which its client
    /// can't return, and no other call.
    pub(crate) async fn attend(
        call: Shared<Self>,
        (elicitor, parked): (&Elicitor, &Parked<Self>),
        context: &RequestContext<RoleServer>,
    ) -> Answered {
        let attended = {
            let mut this = call.lock().await;
            if context
                .protocol_version()
                .is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
            {
                this.asks_by_answer(elicitor, context).await
            } else {
                return this.asks_meanwhile(elicitor, context).await;
            }
        };
        match attended {
            Ok(Attended::Asks(question)) => {
                // A call has only the state that came with its latest question.
                parked.remove(&call);
                let state = elicitor.new_state();
                parked.put(state.clone(), call);
                Ok(InputRequiredResult::new(Some(question), Some(state)).into())
            }
            Ok(Attended::Answered(answer)) => {
                parked.remove(&call);
                Ok(answer)
            }
            Err(error) => Err(error),
        }
    }

    async fn asks_by_answer(
        &mut self,
        elicitor: &Elicitor,
        context: &RequestContext<RoleServer>,
    ) -> Result<Attended, ErrorData> {
        loop {
            let known = self.known.clone();
            let question = tokio::select! {
                biased;
                answered = self.answered() => return answered.map(Attended::Answered),
                () = context.ct.cancelled() => return Err(cancelled()),
                question = elicitor.question_beside(&known) => question,
            };
            self.known.push(question.id.clone());
            match question.url(context) {
                Some(url) => {
                    return Ok(Attended::Asks(InputRequests::from([(
                        question.id.clone(),
                        question.request(url),
                    )])));
                }
                // Without a URL no person can answer, so the login need not wait.
                None => question.declined.cancel(),
            }
        }
    }

    async fn asks_meanwhile(
        &mut self,
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
            tokio::select! {
                biased;
                answered = self.answered() => return answered,
                () = context.ct.cancelled() => {
                    // This call has reserved the question, and no other call would show it.
                    question.declined.cancel();
                    return Err(cancelled());
                }
                // The login no longer waits, so neither does this, even if the client still asks.
                () = elicitor.closed(&question) => {}
                action = context.peer.elicit_url(question.message(), url, question.id.clone()) => match action {
                    // The client opened the page, or will.
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

/// Result of waiting for a call.
enum Attended {
    Answered(CallToolResponse),
    Asks(InputRequests),
}

fn cancelled() -> ErrorData {
    ErrorData::internal_error("the call was cancelled", None)
}

impl AskedQuestion {
    fn message(&self) -> String {
        format!(
            "To log in to {}, sshjobs has a question for you. The page takes your \
             answer; it does not go through this client.",
            self.host
        )
    }

    fn request(&self, url: Url) -> InputRequest {
        // This revision has no ids.
        InputRequest::Elicitation(ElicitRequest::new(
            ElicitRequestParams::UrlElicitationParams {
                meta: None,
                message: self.message(),
                url: url.into(),
                elicitation_id: String::new(),
            },
        ))
    }

    fn url(&self, context: &RequestContext<RoleServer>) -> Option<Url> {
        match &self.address {
            PageAddress::Here(url) => Url::parse(url).ok(),
            PageAddress::Below(path) => {
                let request = context.extensions.get::<Parts>()?;
                let ReachedAt(base) = request.extensions.get::<ReachedAt>()?;
                Url::parse(&format!("{base}{path}")).ok()
            }
        }
    }
}

/// Whether an answer to a question is anything but `accept`.
fn is_refusal(answer: &Value) -> bool {
    answer["action"].as_str().is_none_or(|action| action != "accept")
}

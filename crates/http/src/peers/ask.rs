//! Asks a person whose client is connected to another replica than the one that logs in.

use std::sync::{Arc, OnceLock};

use axum::extract::State;
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http_body_util::{BodyExt, Limited};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use super::header::PassedCaller;
use super::pass_on::send;
use sshjobs_core::jobs::{Answer, Caller, Peers, Prompter, Prompters, Question, Rights, Role};
use sshjobs_wire::Service;

/// Asks this replica's clients first, then those of all other replicas.
#[derive(Clone)]
pub struct ClusterPrompters {
    own: Arc<Prompters>,
    /// Set once the replica has entered the cluster.
    peers: Arc<OnceLock<Arc<dyn Peers>>>,
}

/// Maximum bytes of an answer.
const MOST_ANSWER: usize = 64 << 10;

impl ClusterPrompters {
    /// With the prompters for the replica's own clients.
    pub fn new(own: Prompters) -> Self {
        Self {
            own: Arc::new(own),
            peers: Arc::default(),
        }
    }

    /// Asks the clients of these replicas, too, from now on.
    pub fn note_peers(&self, peers: Arc<dyn Peers>) {
        // It is set once.
        self.peers.set(peers).ok();
    }

    /// Prompters for the logins of this replica.
    pub fn prompters(&self) -> Prompters {
        let this = self.clone();
        Box::new(move |caller| {
            Some(Arc::new(PrompterAtAnyReplica {
                own: (this.own)(caller),
                peers: Arc::clone(&this.peers),
                caller: caller.clone(),
            }))
        })
    }
}

/// Asks a caller at whichever replica its client is.
struct PrompterAtAnyReplica {
    own: Option<Arc<dyn Prompter>>,
    peers: Arc<OnceLock<Arc<dyn Peers>>>,
    caller: Caller,
}

impl Prompter for PrompterAtAnyReplica {
    fn ask<'a>(&'a self, question: &'a Question) -> Answer<'a> {
        Box::pin(async move {
            if let Some(own) = self.own.as_ref().filter(|own| own.is_there()) {
                return own.ask(question).await;
            }
            let peers = self.peers.get()?;
            // A replica without such a client answers at once.
            let others = match peers.others().await {
                Ok(others) => others,
                Err(error) => {
                    tracing::warn!(%error, "no other replica can be asked for a person");
                    return None;
                }
            };
            let mut asked: FuturesUnordered<_> = others
                .iter()
                .map(|replica| ask_at(&**peers, replica, &self.caller, question))
                .collect();
            while let Some(answer) = asked.next().await {
                if answer.is_some() {
                    return answer;
                }
            }
            None
        })
    }

    fn is_there(&self) -> bool {
        // The replica with the client is found when a question comes.
        self.own.as_ref().is_some_and(|own| own.is_there()) || self.peers.get().is_some()
    }
}

/// A question on its way to another replica.
#[derive(Serialize, Deserialize)]
struct SentQuestion {
    host: String,
    text: String,
    echo: bool,
}

async fn ask_at(
    peers: &dyn Peers,
    replica: &str,
    caller: &Caller,
    question: &Question,
) -> Option<SecretString> {
    let sent = SentQuestion {
        host: question.host.clone(),
        text: question.text.clone(),
        echo: question.echo,
    };
    let body = serde_json::to_vec(&sent).expect("it is plain data");
    let mut request = Request::post("/v1/ask")
        .header(header::CONTENT_TYPE, "application/json")
        .body(body.into())
        .expect("its parts are constant");
    // Its rights don't matter: nothing is done there but to ask.
    let rights = Rights::everywhere(Role::Read);
    PassedCaller::new(caller, &rights).write_to(request.headers_mut());
    let response = match send(peers, replica, request).await {
        Ok(response) if response.status() == StatusCode::OK => response,
        Ok(_) => return None,
        Err(error) => {
            tracing::debug!(replica, %error, "a replica could not be asked for a person");
            return None;
        }
    };
    let body = Limited::new(response.into_body(), MOST_ANSWER).collect().await.ok()?;
    serde_json::from_slice::<String>(&body.to_bytes()).ok().map(SecretString::from)
}

/// The route at which other replicas ask.
pub(crate) fn ask_route(prompters: ClusterPrompters) -> Router {
    Router::new().route("/ask", post(ask)).with_state(prompters)
}

/// Asks the caller's client here. 404 without such a client, or without an answer.
async fn ask(
    State(prompters): State<ClusterPrompters>,
    Extension(service): Extension<Service>,
    Json(sent): Json<SentQuestion>,
) -> Response {
    let SentQuestion { host, text, echo } = sent;
    let question = Question { host, text, echo };
    let prompter = (prompters.own)(service.library().caller());
    let Some(prompter) = prompter.filter(|prompter| prompter.is_there()) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    match prompter.ask(&question).await {
        Some(answer) => Json(answer.expose_secret()).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

//! Answer forms below a path of our HTTP server.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Full, Limited};
use secrecy::SecretString;
use secrecy::zeroize::Zeroizing;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::answer_form::{
    AnswerForm, HEADERS, LONGEST_REQUEST, NOTHING_HERE, OTHER_QUESTION, THANKS, document,
    unguessable,
};
use sshjobs_base::lock::lock;
use sshjobs_core::jobs::Question;

/// Forms below a path of an HTTP server, each for one answer of a person. A form's address can't be
/// guessed. It exists only while a login waits for the answer, and reveals nothing.
#[derive(Clone, Default)]
pub struct AnswerDesk {
    waiting: Arc<Mutex<HashMap<String, WaitingQuestion>>>,
    /// Name of this replica in a cluster.
    replica: Arc<OnceLock<String>>,
}

/// A login that waits.
struct WaitingQuestion {
    form: Arc<AnswerForm>,
    question: Question,
    answer: oneshot::Sender<SecretString>,
}

/// A question with its form. Dropping it removes the form.
pub(crate) struct AtDesk {
    desk: AnswerDesk,
    token: String,
    answer: oneshot::Receiver<SecretString>,
}

type Bytes = bytes::Bytes;

/// Time limit for an answer to arrive.
const BODY_TIME: Duration = Duration::from_secs(5);

impl AnswerDesk {
    /// Path of the forms.
    pub const PATH: &str = "/answer/{question}";

    /// From now on names this replica of a cluster in what it makes, so that others can pass requests
    /// for it on.
    pub fn name_replica(&self, name: &str) {
        // It is set once.
        self.replica.set(name.to_owned()).ok();
    }

    /// An id that can't be guessed, and begins with the name of this replica, if it has one.
    pub(crate) fn new_id(&self) -> String {
        match self.replica.get() {
            Some(replica) => format!("{replica}~{}", unguessable()),
            None => unguessable(),
        }
    }

    pub(crate) fn open(&self, question: &Question) -> AtDesk {
        let (sender, answer) = oneshot::channel();
        let form = Arc::new(AnswerForm::new());
        let token = self.new_id();
        let waiting = WaitingQuestion {
            form,
            question: question.clone(),
            answer: sender,
        };
        lock(&self.waiting).insert(token.clone(), waiting);
        AtDesk {
            desk: self.clone(),
            token,
            answer,
        }
    }

    /// Handles a browser's request.
    pub async fn answer<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Display + Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        // The last segment, whatever prefix the server has.
        let token = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        // Cloned, so that no lock is held while the body arrives.
        let shown = lock(&self.waiting)
            .get(&token)
            .map(|open| (Arc::clone(&open.form), open.question.clone()));
        let Some((form, question)) = shown else {
            return page(StatusCode::NOT_FOUND, NOTHING_HERE);
        };
        if *request.method() == Method::GET {
            return page(StatusCode::OK, &form.page(&question));
        }
        if *request.method() != Method::POST {
            return page(StatusCode::METHOD_NOT_ALLOWED, NOTHING_HERE);
        }
        let body = Limited::new(request.into_body(), LONGEST_REQUEST);
        let Ok(Ok(body)) = timeout(BODY_TIME, body.collect()).await else {
            return page(StatusCode::BAD_REQUEST, OTHER_QUESTION);
        };
        let body = Zeroizing::new(body.to_bytes().to_vec());
        let Some(answer) = form.answer_in(&body) else {
            return page(StatusCode::FORBIDDEN, OTHER_QUESTION);
        };
        // Removed, so that only the first of two answers counts.
        match lock(&self.waiting).remove(&token).map(|open| open.answer.send(answer)) {
            Some(Ok(())) => page(StatusCode::OK, THANKS),
            Some(Err(_)) | None => page(StatusCode::NOT_FOUND, NOTHING_HERE),
        }
    }
}

impl AtDesk {
    /// Path of the form, relative to the server's address.
    pub(crate) fn path(&self) -> String {
        AnswerDesk::PATH.replace("{question}", &self.token)
    }

    /// Waits for the answer. Cancel safe.
    pub(crate) async fn answer(&mut self) -> Option<SecretString> {
        (&mut self.answer).await.ok()
    }
}

impl Drop for AtDesk {
    fn drop(&mut self) {
        lock(&self.desk.waiting).remove(&self.token);
    }
}

fn page(status: StatusCode, body: &str) -> Response<Full<Bytes>> {
    let mut response = Response::builder().status(status);
    for (name, value) in HEADERS {
        response = response.header(name, value);
    }
    response.body(Full::from(document(body))).expect("its parts are constant")
}

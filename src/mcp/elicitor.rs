use std::collections::HashMap;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use secrecy::SecretString;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::answer_desk::{AnswerDesk, AtDesk};
use super::answer_form::unguessable;
use super::loopback_page::LoopbackPage;
use crate::jobs::{Answer, Askpass, Caller, Prompter, Prompters, Question};
use crate::lock::lock;

/// Asks the person behind a caller's MCP client what a login needs.
///
/// The question goes out with a call that is waiting for the login, if its client can open addresses (URL mode elicitation). What
/// is typed into the page there goes neither through the client nor to the model, as MCP wants it for passwords and codes.
/// Where there is no such call, `SSH_ASKPASS` is asked; and where there is none of that, nobody.
pub struct Elicitor {
    place: Place,
    askpass: Option<Askpass>,
    asked: watch::Sender<Option<Arc<Asked>>>,
    /// Calls that can put a question to their client.
    askers: AtomicUsize,
}

/// Where the pages are.
enum Place {
    Loopback,
    Desk(AnswerDesk),
}

enum Page {
    Loopback(LoopbackPage),
    Desk(AtDesk),
}

/// A question that waits for its answer.
pub(super) struct Asked {
    pub(super) id: String,
    pub(super) host: String,
    pub(super) address: Address,
    /// The person does not want to answer.
    pub(super) declined: CancellationToken,
    is_shown: AtomicBool,
}

/// Where a page is.
pub(super) enum Address {
    /// A URL.
    Here(String),
    /// A path below the address at which the client has found the server.
    Below(String),
}

/// Time after which a question that no call has put to its client is withdrawn: that call may have gone.
const UNSHOWN: Duration = Duration::from_secs(30);

/// Counts a call that can put questions to its client.
pub(super) struct Asker(Arc<Elicitor>);

impl Elicitor {
    /// One whose pages are on this machine's loopback, for the client that has started the process.
    pub fn new() -> Self {
        Self::at(Place::Loopback, Askpass::from_env())
    }

    fn at(place: Place, askpass: Option<Askpass>) -> Self {
        let (asked, _) = watch::channel(None);
        Self { place, askpass, asked, askers: AtomicUsize::new(0) }
    }

    pub(super) fn asker(self: &Arc<Self>) -> Asker {
        self.askers.fetch_add(1, Ordering::Relaxed);
        Asker(Arc::clone(self))
    }

    /// Waits for a question that no other call has put to its client; it is this one's then. Cancel safe.
    pub(super) async fn question(&self) -> Arc<Asked> {
        let mut asked = self.asked.subscribe();
        let unshown = |asked: &Option<Arc<Asked>>| asked.as_ref().is_some_and(|asked| asked.is_unshown());
        loop {
            let found = asked.wait_for(unshown).await.expect("we have the sender").clone();
            if let Some(found) = found.filter(|found| !found.is_shown.swap(true, Ordering::Relaxed)) {
                return found;
            }
        }
    }

    /// Waits for a question that is none of those `known`, whoever else shows it. Cancel safe.
    pub(super) async fn question_beside(&self, known: &[String]) -> Arc<Asked> {
        let mut asked = self.asked.subscribe();
        let is_new =
            |asked: &Option<Arc<Asked>>| asked.as_ref().is_some_and(|asked| !known.contains(&asked.id));
        loop {
            if let Some(found) = asked.wait_for(is_new).await.expect("we have the sender").clone() {
                found.is_shown.store(true, Ordering::Relaxed);
                return found;
            }
        }
    }

    /// Comes when nobody waits for the answer any more.
    pub(super) async fn is_over(&self, question: &Asked) {
        let other = |asked: &Option<Arc<Asked>>| asked.as_ref().is_none_or(|asked| asked.id != question.id);
        self.asked.subscribe().wait_for(other).await.map(drop).expect("we have the sender");
    }

    /// The person does not want to answer a question.
    pub(super) fn decline(&self, id: &str) {
        let asked = self.asked.borrow().clone();
        if let Some(asked) = asked.filter(|asked| asked.id == id) {
            asked.declined.cancel();
        }
    }

    async fn open(&self, question: &Question) -> Option<Page> {
        match &self.place {
            Place::Loopback => {
                let opened = LoopbackPage::open().await;
                opened
                    .inspect_err(|error| tracing::warn!(%error, "no page for a question"))
                    .ok()
                    .map(Page::Loopback)
            }
            Place::Desk(desk) => Some(Page::Desk(desk.open(question))),
        }
    }

    async fn by_page(&self, question: &Question) -> Option<SecretString> {
        let mut page = self.open(question).await?;
        let asked = Arc::new(Asked {
            id: unguessable(),
            host: question.host.clone(),
            address: page.address(),
            declined: CancellationToken::new(),
            is_shown: AtomicBool::new(false),
        });
        let _shown = Shown::new(&self.asked, Arc::clone(&asked));
        tokio::select! {
            answer = page.answer(question) => answer,
            () = asked.declined.cancelled() => None,
            () = asked.is_left() => None,
        }
    }
}

impl Default for Elicitor {
    fn default() -> Self {
        Self::new()
    }
}

impl Prompter for Elicitor {
    fn ask<'a>(&'a self, question: &'a Question) -> Answer<'a> {
        Box::pin(async move {
            if self.askers.load(Ordering::Relaxed) > 0 {
                return self.by_page(question).await;
            }
            match &self.askpass {
                Some(askpass) => askpass.ask(question).await,
                None => None,
            }
        })
    }

    fn is_there(&self) -> bool {
        self.askpass.is_some() || self.askers.load(Ordering::Relaxed) > 0
    }
}

/// For a server of many callers: an [`Elicitor`] for each, with pages at one [`AnswerDesk`].
#[derive(Clone, Default)]
pub struct Elicitors {
    desk: AnswerDesk,
    of: Arc<Mutex<HashMap<Caller, Arc<Elicitor>>>>,
}

impl Elicitors {
    /// Where the pages are.
    pub fn desk(&self) -> AnswerDesk {
        self.desk.clone()
    }

    /// For the logins of a service.
    pub fn prompters(&self) -> Prompters {
        let elicitors = self.clone();
        Box::new(move |caller| Some(elicitors.of(caller)))
    }

    pub(super) fn of(&self, caller: &Caller) -> Arc<Elicitor> {
        let mut of = lock(&self.of);
        let new = || Arc::new(Elicitor::at(Place::Desk(self.desk.clone()), None));
        Arc::clone(of.entry(caller.clone()).or_insert_with(new))
    }
}

impl Page {
    fn address(&self) -> Address {
        match self {
            Self::Loopback(page) => Address::Here(page.url()),
            Self::Desk(page) => Address::Below(page.path()),
        }
    }

    async fn answer(&mut self, question: &Question) -> Option<SecretString> {
        match self {
            Self::Loopback(page) => page.answer(question).await.ok(),
            Self::Desk(page) => page.answer().await,
        }
    }
}

impl Asked {
    /// Comes when no call has put it to a client.
    async fn is_left(&self) {
        sleep(UNSHOWN).await;
        if !self.is_unshown() {
            pending().await
        }
    }

    fn is_unshown(&self) -> bool {
        !self.is_shown.load(Ordering::Relaxed)
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.0.askers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A question while it is asked.
struct Shown<'a>(&'a watch::Sender<Option<Arc<Asked>>>);

impl<'a> Shown<'a> {
    fn new(place: &'a watch::Sender<Option<Arc<Asked>>>, asked: Arc<Asked>) -> Self {
        place.send_replace(Some(asked));
        Self(place)
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        self.0.send_replace(None);
    }
}

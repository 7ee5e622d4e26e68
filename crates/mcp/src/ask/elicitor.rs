//! Passes questions of a login to the caller's client, and the person's answer back to the
//! login.

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
use sshjobs_base::lock::lock;
use sshjobs_core::jobs::{Answer, Askpass, Caller, Prompter, Prompters, Question};

/// Asks the person behind a caller's MCP client for a login's secrets.
///
/// A question is sent with a call that waits for the login, if its client supports URL mode
/// elicitation. The answer is typed into a page and passes neither through the client nor to the
/// model, as MCP requires for passwords and codes. Without such a call, `SSH_ASKPASS` is asked;
/// without that, the login fails.
pub struct Elicitor {
    place: PageServer,
    askpass: Option<Askpass>,
    asked: watch::Sender<Option<Arc<AskedQuestion>>>,
    /// Number of calls that can pass a question to their client.
    askers: AtomicUsize,
}

/// Where the pages are served.
enum PageServer {
    Loopback,
    Desk(AnswerDesk),
}

enum QuestionPage {
    Loopback(LoopbackPage),
    Desk(AtDesk),
}

/// A question that waits for its answer.
pub(crate) struct AskedQuestion {
    pub(crate) id: String,
    pub(crate) host: String,
    pub(crate) address: PageAddress,
    /// Cancelled if the person declines.
    pub(crate) declined: CancellationToken,
    is_shown: AtomicBool,
}

/// Address of a page.
pub(crate) enum PageAddress {
    /// A complete URL.
    Here(String),
    /// A path relative to the URL at which the client reached the server.
    Below(String),
}

/// Time after which a question that no call has shown is withdrawn: the call may have ended.
const UNSHOWN: Duration = Duration::from_secs(30);

/// Counts a call that can pass questions to its client.
pub(crate) struct Asker(Arc<Elicitor>);

impl Elicitor {
    /// An elicitor with pages on the loopback interface, for the client that started this process.
    pub fn new() -> Self {
        Self::at(PageServer::Loopback, Askpass::from_env())
    }

    fn at(place: PageServer, askpass: Option<Askpass>) -> Self {
        let (asked, _) = watch::channel(None);
        Self {
            place,
            askpass,
            asked,
            askers: AtomicUsize::new(0),
        }
    }

    pub(crate) fn asker(self: &Arc<Self>) -> Asker {
        self.askers.fetch_add(1, Ordering::Relaxed);
        Asker(Arc::clone(self))
    }

    /// A state for a call to which its client returns.
    pub(crate) fn new_state(&self) -> String {
        match &self.place {
            PageServer::Loopback => unguessable(),
            PageServer::Desk(desk) => desk.new_id(),
        }
    }

    /// Waits for a question that no other call has shown, and reserves it. Cancel safe.
    pub(crate) async fn question(&self) -> Arc<AskedQuestion> {
        let mut asked = self.asked.subscribe();
        loop {
            let found = asked.wait_for(is_unshown).await.expect("we have the sender").clone();
            // Another call may have reserved it in the meantime. No await from here to the return.
            if let Some(found) = found.filter(|found| !found.is_shown.swap(true, Ordering::Relaxed))
            {
                return found;
            }
        }
    }

    /// Waits for a question that is not in `known`, even if other calls show it. Cancel safe.
    pub(crate) async fn question_beside(&self, known: &[String]) -> Arc<AskedQuestion> {
        let mut asked = self.asked.subscribe();
        loop {
            let new = asked.wait_for(|asked| is_beside(asked.as_ref(), known)).await;
            if let Some(found) = new.expect("we have the sender").clone() {
                // So that the question is not withdrawn after UNSHOWN.
                found.is_shown.store(true, Ordering::Relaxed);
                return found;
            }
        }
    }

    /// Resolves when no login waits for the answer any more.
    pub(crate) async fn closed(&self, question: &AskedQuestion) {
        self.asked
            .subscribe()
            .wait_for(|asked: &Option<Arc<AskedQuestion>>| {
                asked.as_ref().is_none_or(|asked| asked.id != question.id)
            })
            .await
            .map(drop)
            .expect("we have the sender");
    }

    /// Notes that the person declined a question.
    pub(crate) fn decline(&self, id: &str) {
        let asked = self.asked.borrow().clone();
        if let Some(asked) = asked.filter(|asked| asked.id == id) {
            asked.declined.cancel();
        }
    }

    async fn open(&self, question: &Question) -> Option<QuestionPage> {
        match &self.place {
            PageServer::Loopback => {
                let opened = LoopbackPage::open().await;
                opened
                    .inspect_err(|error| tracing::warn!(%error, "no page for a question"))
                    .ok()
                    .map(QuestionPage::Loopback)
            }
            PageServer::Desk(desk) => Some(QuestionPage::Desk(desk.open(question))),
        }
    }

    async fn by_page(&self, question: &Question) -> Option<SecretString> {
        let mut page = self.open(question).await?;
        let asked = Arc::new(AskedQuestion {
            id: unguessable(),
            host: question.host.clone(),
            address: page.address(),
            declined: CancellationToken::new(),
            is_shown: AtomicBool::new(false),
        });
        // Dropped before `page`, so that no call shows an address that is closed.
        let _shown = QuestionOnPage::new(&self.asked, Arc::clone(&asked));
        tokio::select! {
            answer = page.answer(question) => answer,
            () = asked.declined.cancelled() => None,
            () = asked.unshown_too_long() => None,
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

/// Elicitors of a server with many callers: one for each, with pages at one [`AnswerDesk`].
#[derive(Clone, Default)]
pub struct Elicitors {
    desk: AnswerDesk,
    of: Arc<Mutex<HashMap<Caller, Arc<Elicitor>>>>,
}

impl Elicitors {
    /// The desk that serves the pages.
    pub fn desk(&self) -> AnswerDesk {
        self.desk.clone()
    }

    /// Prompters for the logins of a service.
    pub fn prompters(&self) -> Prompters {
        let elicitors = self.clone();
        Box::new(move |caller| Some(elicitors.of(caller)))
    }

    pub(crate) fn of(&self, caller: &Caller) -> Arc<Elicitor> {
        let mut of = lock(&self.of);
        Arc::clone(
            of.entry(caller.clone()).or_insert_with(|| {
                Arc::new(Elicitor::at(PageServer::Desk(self.desk.clone()), None))
            }),
        )
    }
}

impl QuestionPage {
    fn address(&self) -> PageAddress {
        match self {
            Self::Loopback(page) => PageAddress::Here(page.url()),
            Self::Desk(page) => PageAddress::Below(page.path()),
        }
    }

    async fn answer(&mut self, question: &Question) -> Option<SecretString> {
        match self {
            Self::Loopback(page) => page.answer(question).await.ok(),
            Self::Desk(page) => page.answer().await,
        }
    }
}

impl AskedQuestion {
    /// Resolves when no call has shown it to a client in time.
    async fn unshown_too_long(&self) {
        // One check is enough: a question that was shown stays shown.
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

/// A question while it is being asked.
struct QuestionOnPage<'a>(&'a watch::Sender<Option<Arc<AskedQuestion>>>);

impl<'a> QuestionOnPage<'a> {
    fn new(
        place: &'a watch::Sender<Option<Arc<AskedQuestion>>>,
        asked: Arc<AskedQuestion>,
    ) -> Self {
        // Replaces no other question: `ssh` asks a caller one at a time.
        place.send_replace(Some(asked));
        Self(place)
    }
}

impl Drop for QuestionOnPage<'_> {
    fn drop(&mut self) {
        self.0.send_replace(None);
    }
}

fn is_unshown(asked: &Option<Arc<AskedQuestion>>) -> bool {
    asked.as_ref().is_some_and(|asked| asked.is_unshown())
}

fn is_beside(asked: Option<&Arc<AskedQuestion>>, known: &[String]) -> bool {
    asked.is_some_and(|asked| !known.contains(&asked.id))
}

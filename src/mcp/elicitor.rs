use std::sync::OnceLock;

use rmcp::model::ElicitationAction;
use rmcp::service::{ElicitationMode, Peer, RoleServer};
use url::Url;

use super::answer_form::AnswerForm;
use crate::jobs::{Answer, Askpass, Prompter, Question};

/// Asks the person behind an MCP client what a login needs.
///
/// A client that can open addresses (URL mode elicitation) is given one of a page on this machine: what is typed there goes
/// neither through the client nor to the model, as MCP wants it for passwords and codes. Else, and if the client has none of
/// that, `SSH_ASKPASS` is asked; and where there is neither, nobody.
pub struct Elicitor {
    client: OnceLock<Peer<RoleServer>>,
    askpass: Option<Askpass>,
}

impl Elicitor {
    /// One that knows no client yet.
    pub fn new() -> Self {
        Self { client: OnceLock::new(), askpass: Askpass::from_env() }
    }

    pub(super) fn meet(&self, client: Peer<RoleServer>) {
        // A process serves one client.
        self.client.set(client).ok();
    }

    async fn by_page(&self, client: &Peer<RoleServer>, question: &Question) -> Option<secrecy::SecretString> {
        let page = AnswerForm::open().await.ok()?;
        let url = Url::parse(&page.url()).ok()?;
        let message = format!(
            "To log in to {}, sshjobs has a question for you. It is on a page of this machine.",
            question.host
        );
        let mut asked =
            std::pin::pin!(client.elicit_url(message, url, format!("{:032x}", rand::random::<u128>())));
        let mut answered = std::pin::pin!(page.answer(question));
        tokio::select! {
            answer = &mut answered => answer.ok(),
            action = &mut asked => match action {
                // The page was opened, or will be.
                Ok(ElicitationAction::Accept) => answered.await.ok(),
                Ok(_) => None,
                Err(error) => {
                    tracing::warn!(%error, "the client can't show a question");
                    None
                }
            },
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
            let can_open = |client: &&Peer<RoleServer>| {
                client.supported_elicitation_modes().contains(&ElicitationMode::Url)
            };
            if let Some(client) = self.client.get().filter(can_open) {
                return self.by_page(client, question).await;
            }
            match &self.askpass {
                Some(askpass) => askpass.ask(question).await,
                None => None,
            }
        })
    }
}

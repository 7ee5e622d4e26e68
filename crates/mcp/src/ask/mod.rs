//! Asking the person behind a client for the secrets of a login, on a page that the client
//! opens.

mod answer_desk;
mod answer_form;
mod elicitor;
mod loopback_page;

pub use answer_desk::AnswerDesk;
pub(crate) use answer_form::unguessable;
pub(crate) use elicitor::{AskedQuestion, Asker, PageAddress};
pub use elicitor::{Elicitor, Elicitors};

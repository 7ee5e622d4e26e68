//! Screens of terminal jobs, kept while they are asked for.
//!
//! # Theory of operation
//!
//! [`Screens`] keeps a [`JobScreen`](crate::job::JobScreen) for each job whose screen was asked for
//! lately. Callers take turns on it: each draws the output since the last call, then looks. No task
//! draws ahead, so a screen that nobody asks for costs nothing.
//!
//! A job whose terminal answers queries is the exception: `answer_queries` is a task of the runner
//! that draws as output arrives, and writes the answers to the job's stdin. It ends with the job.

mod answer_queries;
mod screens;

pub(crate) use answer_queries::{answer_queries, has_answering_terminal};
pub(crate) use screens::Screens;

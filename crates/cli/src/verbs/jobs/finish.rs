//! The common end of the verbs that make one call or a few.

use crate::{ProgramExit, note, report};
use sshjobs_core::jobs::printable;
use sshjobs_wire::Error;
use sshjobs_wire::remote::Api;

/// Awaits a verb, reports its error, and shuts down.
pub(crate) async fn finish(
    api: &Api,
    verb: impl Future<Output = Result<ProgramExit, Error>>,
) -> ProgramExit {
    let exit = verb.await.unwrap_or_else(|error| {
        report(&error);
        ProgramExit::of_error(&error)
    });
    api.shutdown().await;
    exit
}

/// Warns on stderr if a job's host can't be reached, because newer output may be missing. Returns
/// whether it did.
pub(crate) async fn warn_if_unreachable(api: &Api, id: &str) -> bool {
    let Ok(entry) = api.entry(id).await else { return false };
    let is_out = entry.standing.disconnected_ms.is_some();
    if is_out {
        note(&format!(
            "{} is out of reach: {id} may have printed more",
            printable(&entry.host)
        ));
    }
    is_out
}

//! Answers every call, even if its code panics.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use rmcp::model::ErrorData;

/// The result of a call, or an internal error if it panics. Without it the client would wait
/// forever.
///
/// A call may leave state half changed only behind locks, which the next call takes again, so
/// continuing is safe.
pub(crate) async fn answered<T>(
    call: impl Future<Output = Result<T, ErrorData>>,
) -> Result<T, ErrorData> {
    AssertUnwindSafe(call).catch_unwind().await.unwrap_or_else(|_| {
        tracing::error!("a call has panicked; its client gets an internal error");
        Err(ErrorData::internal_error(
            "the call failed inside the server: please report this",
            None,
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_call_that_panics_is_answered_with_an_internal_error() {
        let panicking = async {
            let nothing: Option<u8> = std::hint::black_box(None);
            Ok(nothing.expect("a panic"))
        };

        let error = answered(panicking).await.unwrap_err();

        assert_eq!(error.code, rmcp::model::ErrorCode::INTERNAL_ERROR);
    }
}

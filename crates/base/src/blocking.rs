//! Calls that block, such as those of a store.

/// Runs a call that blocks on a thread for such calls. `None` if the call panics or the runtime shuts
/// down. If the future is dropped, the call continues.
pub async fn run_blocking<T: Send + 'static>(
    call: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if in_place::is_set() {
        return Some(call());
    }
    tokio::task::spawn_blocking(call).await.ok()
}

/// Blocking calls on the thread of their caller, so that a simulation repeats their order. Only tests
/// enter it.
pub mod in_place {
    use std::cell::Cell;

    /// Blocking calls of this thread run in place while it lives.
    pub struct InPlace;

    thread_local! {
        static IN_PLACE: Cell<bool> = const { Cell::new(false) };
    }

    /// Makes blocking calls of this thread run in place.
    #[must_use]
    pub fn enter() -> InPlace {
        IN_PLACE.set(true);
        InPlace
    }

    impl Drop for InPlace {
        fn drop(&mut self) {
            IN_PLACE.set(false);
        }
    }

    pub(super) fn is_set() -> bool {
        IN_PLACE.get()
    }
}

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose contents are whole after every statement, so that a task that panicked under it has spoilt nothing.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

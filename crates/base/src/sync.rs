//! Locks, atomic values and channels of the state that recorders, storing threads and readers of a job
//! share.
//!
//! They are those of the standard library. Under `--cfg shuttle` they are shuttle's, so that tests can
//! run the threads in many orders (`keeping/interleavings.rs`). Everything else uses
//! `std::sync` and `lock.rs`. shuttle's locks are not in the check of lock orders.

#[cfg(not(shuttle))]
pub use std::sync::{Mutex, atomic, mpsc};

#[cfg(shuttle)]
pub use shuttle::sync::{Mutex, atomic, mpsc};

#[cfg(not(shuttle))]
pub use crate::lock::{LockGuard, lock};

/// A locked mutex.
#[cfg(shuttle)]
pub type LockGuard<'a, T> = shuttle::sync::MutexGuard<'a, T>;

/// Locks a mutex, poisoned or not.
#[cfg(shuttle)]
pub fn lock<T>(mutex: &Mutex<T>) -> shuttle::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

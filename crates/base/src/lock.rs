//! Locks, and a check of their order in debug builds.
//!
//! Two threads that take the same two locks in opposite orders can stop each other forever. So can
//! one thread that reads a lock twice, as soon as a writer waits between the two reads. Tests see
//! neither unless the timing is unlucky. Debug builds therefore record which kind of lock was taken
//! while which other kind was held, and panic at the first order that contradicts an earlier one.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex.
///
/// A poisoned mutex is used all the same: its contents are consistent after every statement, so a
/// task that panicked under the lock has left nothing half done.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> LockGuard<'_, T> {
    // Checked before the wait, so that a wrong order panics instead of blocking.
    let held = Held::new(std::any::type_name::<T>());
    let guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
    LockGuard { guard, _held: held }
}

/// A locked mutex.
pub struct LockGuard<'a, T: ?Sized> {
    guard: MutexGuard<'a, T>,
    _held: Held,
}

impl<T: ?Sized> Deref for LockGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> DerefMut for LockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// Marks a lock as held by this thread while it lives. Release builds check nothing.
pub struct Held {
    #[cfg(debug_assertions)]
    kind: &'static str,
}

impl Held {
    /// Notes that this thread is about to take a lock.
    ///
    /// # Panics
    /// In debug builds, if this thread already holds a lock of that kind, or if a thread has ever
    /// taken a lock of that kind and one that this thread holds in the opposite order.
    #[cfg(debug_assertions)]
    pub fn new(kind: &'static str) -> Self {
        order::enter(kind);
        Self { kind }
    }

    #[cfg(not(debug_assertions))]
    pub fn new(_kind: &'static str) -> Self {
        Self {}
    }
}

#[cfg(debug_assertions)]
impl Drop for Held {
    fn drop(&mut self) {
        order::leave(self.kind);
    }
}

#[cfg(debug_assertions)]
mod order {
    use std::cell::RefCell;
    use std::collections::{HashMap, HashSet};
    use std::sync::{LazyLock, Mutex, PoisonError};

    /// For each kind of lock, the kinds that were taken while it was held.
    type Orders = HashMap<&'static str, HashSet<&'static str>>;

    static ORDERS: LazyLock<Mutex<Orders>> = LazyLock::new(Mutex::default);

    thread_local! {
        /// The kinds that this thread holds, in the order in which it took them.
        static HELD: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn enter(kind: &'static str) {
        let held = HELD.with_borrow(Clone::clone);
        if !held.is_empty() {
            check(&held, kind);
        }
        HELD.with_borrow_mut(|held| held.push(kind));
    }

    pub(super) fn leave(kind: &'static str) {
        // When a thread ends, this list may be dropped before the thread's last guards.
        let _gone = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            // Guards may be dropped in another order than they were taken.
            if let Some(index) = held.iter().rposition(|&other| other == kind) {
                held.remove(index);
            }
        });
    }

    fn check(held: &[&'static str], kind: &'static str) {
        // A failed check panics under this lock and poisons it; later checks still need the orders.
        let mut orders = ORDERS.lock().unwrap_or_else(PoisonError::into_inner);
        for &holder in held {
            assert!(
                holder != kind,
                "a thread that holds {kind} locks {kind} again"
            );
            assert!(
                !is_taken_under(&orders, holder, kind),
                "{kind} is locked under {holder} here, and {holder} under {kind} elsewhere"
            );
            orders.entry(holder).or_default().insert(kind);
        }
    }

    /// Whether `inner` was ever taken while `outer` was held, directly or by way of other locks.
    fn is_taken_under(orders: &Orders, inner: &str, outer: &str) -> bool {
        let mut seen = HashSet::new();
        let mut to_visit = vec![outer];
        while let Some(kind) = to_visit.pop() {
            for &next in orders.get(kind).into_iter().flatten() {
                if next == inner {
                    return true;
                }
                if seen.insert(next) {
                    to_visit.push(next);
                }
            }
        }
        false
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "locks u8 again")]
    fn a_thread_may_not_take_a_lock_twice() {
        let first = Mutex::new(1u8);
        let second = Mutex::new(2u8);
        let _held = lock(&first);

        drop(lock(&second));
    }

    #[test]
    fn two_locks_are_taken_in_one_order_only() {
        let first = Mutex::new([1u8; 3]);
        let second = Mutex::new([1u8; 4]);
        let third = Mutex::new([1u8; 5]);
        {
            let _first = lock(&first);
            drop(lock(&second));
        }
        {
            let _second = lock(&second);
            drop(lock(&third));
        }

        let contradiction = std::panic::catch_unwind(|| {
            let _third = lock(&third);
            drop(lock(&first));
        });

        assert!(
            contradiction.is_err(),
            "the third was taken under the first by way of the second"
        );
        drop(lock(&first));
    }
}

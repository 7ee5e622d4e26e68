use std::collections::HashMap;
use std::sync::Mutex;

use super::error::Error;
use crate::hosts::HostRef;
use sshjobs_base::lock::lock;

/// Last connection error of each host.
#[derive(Default)]
pub(super) struct LastErrors(Mutex<HashMap<HostRef, Error>>);

/// Maximum hosts whose last error is kept. Without a limit the map could grow forever if any host
/// is allowed.
const MOST: usize = 1000;

impl LastErrors {
    pub(super) fn get(&self, host: &HostRef) -> Option<Error> {
        lock(&self.0).get(host).cloned()
    }

    /// Number of hosts whose last connection has failed.
    pub(super) fn count(&self) -> usize {
        lock(&self.0).len()
    }

    pub(super) fn note(&self, host: &HostRef, error: Option<&Error>) {
        let mut errors = lock(&self.0);
        match error {
            Some(_) if errors.len() >= MOST && !errors.contains_key(host) => None,
            Some(error) => errors.insert(host.clone(), error.clone()),
            None => errors.remove(host),
        };
    }
}

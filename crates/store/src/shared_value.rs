//! A value that all processes with the same store share and replace as a whole.

use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::spawn_blocking;

use super::error::StoreError;
use super::local_text::MemoryText;
use super::shared_text::SharedText;
use super::store::Store;

/// A value that all processes with the same store share, as JSON. A cheap handle.
pub struct SharedValue<T> {
    shared: Arc<SharedValueState>,
    value: PhantomData<fn() -> T>,
}

struct SharedValueState {
    /// Name of the shared text.
    name: &'static str,
    /// `None` if nothing is stored: the value then ends with the process.
    store: Option<Result<Arc<dyn Store>, StoreError>>,
    /// The text with the value, opened when it is first needed.
    text: OnceLock<Box<dyn SharedText>>,
}

/// Why a shared value can't be used.
#[derive(Debug, thiserror::Error)]
pub enum SharedValueError {
    /// It can't be read or stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The stored value is damaged.
    #[error("the stored {0} are damaged: {1}")]
    Damaged(&'static str, serde_json::Error),
}

/// A value, with the version of its text.
struct VersionedValue<T> {
    value: T,
    version: u64,
}

impl<T> Clone for SharedValue<T> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            value: PhantomData,
        }
    }
}

impl<T> SharedValue<T>
where
    T: Clone + Default + PartialEq + Serialize + DeserializeOwned + 'static,
{
    /// The value with a name, such as `approvals`: one word, because not every store takes others.
    pub fn new(name: &'static str, store: Option<Result<Arc<dyn Store>, StoreError>>) -> Self {
        debug_assert!(
            name.bytes().all(|byte| byte.is_ascii_lowercase()),
            "{name:?} is not one word"
        );
        Self {
            shared: Arc::new(SharedValueState {
                name,
                store,
                text: OnceLock::new(),
            }),
            value: PhantomData,
        }
    }

    /// The value as it is now.
    ///
    /// # Errors
    /// If it can't be read.
    pub async fn read(&self) -> Result<T, SharedValueError>
    where
        T: Send,
    {
        self.off_runtime(|shared| Ok(shared.load()?.value)).await
    }

    /// Changes the value. Of two changes at once, the second one is made to the value that the first has
    /// left, so `change` may run again.
    ///
    /// # Errors
    /// If it can't be read or stored.
    pub async fn change<R: Send + 'static>(
        &self,
        change: impl Fn(&mut T) -> R + Send + 'static,
    ) -> Result<R, SharedValueError> {
        self.off_runtime(move |shared| {
            loop {
                let VersionedValue {
                    value: before,
                    version,
                } = shared.load::<T>()?;
                let mut value = before.clone();
                let result = change(&mut value);
                if value == before {
                    return Ok(result);
                }
                let text = serde_json::to_string(&value)
                    .map_err(|error| SharedValueError::Damaged(shared.name, error))?;
                if shared.text()?.replace(&text, version)? {
                    return Ok(result);
                }
            }
        })
        .await
    }

    async fn off_runtime<R: Send + 'static>(
        &self,
        work: impl FnOnce(&SharedValueState) -> Result<R, SharedValueError> + Send + 'static,
    ) -> Result<R, SharedValueError> {
        let shared = Arc::clone(&self.shared);
        let done = spawn_blocking(move || work(&shared)).await;
        done.unwrap_or_else(|error| Err(StoreError::Records(error.to_string()).into()))
    }
}

impl SharedValueState {
    fn load<T: Default + DeserializeOwned>(&self) -> Result<VersionedValue<T>, SharedValueError> {
        let text = self.text()?;
        text.refresh()?;
        let current = text.read();
        let value = if current.text.is_empty() {
            T::default()
        } else {
            serde_json::from_str(&current.text)
                .map_err(|error| SharedValueError::Damaged(self.name, error))?
        };
        Ok(VersionedValue {
            value,
            version: current.version,
        })
    }

    fn text(&self) -> Result<&dyn SharedText, StoreError> {
        if let Some(text) = self.text.get() {
            return Ok(&**text);
        }
        let opened: Box<dyn SharedText> = match &self.store {
            Some(Ok(store)) => store.shared_text(self.name)?,
            // Not a value of this process alone: other processes could not see it.
            Some(Err(error)) => return Err(error.clone()),
            None => Box::new(MemoryText::default()),
        };
        // Another thread may have opened it meanwhile; then that one is used.
        Ok(&**self.text.get_or_init(|| opened))
    }
}

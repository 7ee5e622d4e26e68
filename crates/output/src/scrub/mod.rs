//! Replaces secrets in the output of a job by their names. Pure.
//!
//! A [`HiddenSecret`] knows the forms in which a value may be printed: as it is, in base64, encoded for
//! a URL, quoted for a shell, or escaped in JSON. A [`Scrubber`] gets the bytes of one stream in pieces
//! of any size and returns the same bytes with each form replaced by `[secret NAME]`. It holds back the
//! last bytes of a piece while they may be the start of a secret, so that the result does not depend on
//! where the pieces end.

mod form;
mod hidden_secret;
mod scrubber;

pub use hidden_secret::{HiddenSecret, MIN_SECRET_BYTES, SCRUBBER_VERSION};
pub use scrubber::{Scrubber, hide_in};

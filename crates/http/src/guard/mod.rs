//! Everything before a request is performed: names, tokens, limits, bodies and metrics.

mod bodies;
mod challenge;
mod failures;
mod guard;
mod in_flight;
mod login_cookie;
mod logins;
pub(crate) mod metrics;
mod names;

pub(crate) use bodies::Bodies;
pub(crate) use challenge::METADATA;
pub(crate) use failures::LoginFailures;
pub(crate) use guard::{BaseUrl, RequestGuard, check_names, guard};
pub(crate) use in_flight::InFlight;
pub(crate) use login_cookie::LoginCookie;
pub(crate) use logins::PageLogins;
pub(crate) use metrics::Metrics;
pub(crate) use names::AllowedNames;

//! Converts errors of the library to those of the contract: each gets its code, and a hint what to
//! do next.

mod approvals;
mod calls;
mod connect;
mod expired;
mod explain;
mod files;
mod forwards;
mod policy;
mod secrets;

use expired::expired;

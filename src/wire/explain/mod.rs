//! The library's errors in the words of the contract: each with its code, and a hint what to do next.

mod calls;
mod connect;
mod expired;
mod explain;

use expired::expired;

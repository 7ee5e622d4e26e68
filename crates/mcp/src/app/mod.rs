//! The log of a job as an MCP App (SEP-1865): a page that clients show beside a tool's result.
//!
//! The page is one HTML file without addresses of its own: the style and the modules of the HTTP server's
//! page (`src/web`), with `host.js` in place of `api.js`. It reads output by calling our tools through the
//! client, with the rights of the person or agent there.

mod page;

pub(crate) use page::{LOG_APP, MEDIA_TYPE, page, ui_meta};

//! The skill that teaches agents the tools, served over MCP (SEP-2640). Its files are those of the
//! repository's folder `skills`.

mod served;

pub(crate) use served::{file, skill};

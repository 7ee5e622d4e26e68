//! Builds the log page as a single HTML file: the style sheet and all script modules are inlined.

use std::fmt::Write;
use std::sync::LazyLock;

use rmcp::model::{JsonObject, MetaObject};
use serde_json::Value;

/// URI of the page that shows the log of a job.
pub(crate) const LOG_APP: &str = "ui://sshjobs/log";
/// Media type by which clients recognize a page that they may show.
pub(crate) const MEDIA_TYPE: &str = "text/html;profile=mcp-app";

/// A module of the page, with the name by which others import it.
struct Module {
    name: &'static str,
    source: &'static str,
}

impl Module {
    const fn new(name: &'static str, source: &'static str) -> Self {
        Self { name, source }
    }
}

/// The modules, each after those that it imports.
const MODULES: [Module; 11] = [
    Module::new("./format.js", sshjobs_page::FORMAT_JS),
    Module::new("./dom.js", sshjobs_page::DOM_JS),
    Module::new("./line_cache.js", sshjobs_page::LINE_CACHE_JS),
    Module::new("./scroll_bar.js", sshjobs_page::SCROLL_BAR_JS),
    Module::new("./styled_span.js", sshjobs_page::STYLED_SPAN_JS),
    Module::new("./log_view.js", sshjobs_page::LOG_VIEW_JS),
    Module::new("./api.js", include_str!("host.js")),
    Module::new("./matching_lines.js", sshjobs_page::MATCHING_LINES_JS),
    Module::new("./folds.js", sshjobs_page::FOLDS_JS),
    Module::new("./finder.js", sshjobs_page::FINDER_JS),
    Module::new("./log_app.js", include_str!("log_app.js")),
];

static PAGE: LazyLock<String> = LazyLock::new(|| {
    let script: String = MODULES.iter().map(Module::as_function).collect();
    include_str!("log.html")
        .replace("/*style*/", sshjobs_page::PAGE_CSS)
        .replace("/*script*/", &format!("\nconst modules = {{}};\n{script}"))
});

/// Metadata of a tool or a resource about its page.
pub(crate) fn ui_meta(settings: Value) -> MetaObject {
    MetaObject(JsonObject::from_iter([("ui".to_owned(), settings)]))
}

/// The page as HTML.
pub(crate) fn page() -> &'static str {
    &PAGE
}

impl Module {
    /// The module as a function of its own, which is called at once and returns the exports. A page of
    /// one file has no addresses from which it could import modules.
    fn as_function(&self) -> String {
        let mut code = String::new();
        let mut exports = Vec::new();
        for line in self.source.lines() {
            let line = match line.strip_prefix("export ") {
                Some(declaration) => {
                    exports.push(declared_name(declaration));
                    declaration
                }
                None => line,
            };
            match imported(line) {
                Some((names, module)) => {
                    writeln!(code, "const {names} = modules[\"{module}\"];")
                }
                None => writeln!(code, "{line}"),
            }
            .expect("a string takes all");
        }
        format!(
            "modules[\"{}\"] = await (async () => {{\n{code}return {{ {} }};\n}})();\n",
            self.name,
            exports.join(", ")
        )
    }
}

/// The names and the module of a line such as `import { a, b } from "./c.js";`.
fn imported(line: &str) -> Option<(&str, &str)> {
    let (names, module) = line.strip_prefix("import ")?.split_once(" from \"")?;
    Some((names, module.strip_suffix("\";")?))
}

/// The name that a declaration introduces, such as that of `async function find(text) {`.
fn declared_name(declaration: &str) -> &str {
    let words = declaration.split([' ', '(']);
    let mut names = words.filter(|word| !["async", "function", "class", "const"].contains(word));
    names.next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_becomes_a_function() {
        let module = Module {
            name: "./b.js",
            source: "import { a } from \"./a.js\";\nexport const B = a;\nexport async function c(d) {}\n",
        };
        assert_eq!(
            module.as_function(),
            "modules[\"./b.js\"] = await (async () => {\nconst { a } = modules[\"./a.js\"];\n\
             const B = a;\nasync function c(d) {}\nreturn { B, c };\n})();\n"
        );
    }

    #[test]
    fn every_module_comes_after_those_that_it_imports() {
        for (at, module) in MODULES.iter().enumerate() {
            for line in module.source.lines().filter(|line| line.starts_with("import")) {
                let (_, imported) = imported(line).unwrap_or_else(|| panic!("{line}"));
                let before = MODULES.iter().take(at);
                assert!(
                    before.into_iter().any(|module| module.name == imported),
                    "{}: {line}",
                    module.name
                );
            }
        }
    }

    #[test]
    fn the_page_loads_nothing_and_no_script_ends_it_early() {
        let page = page();
        assert_eq!(page.matches("</script>").count(), 1);
        assert_eq!(page.matches("</style>").count(), 1);
        for line in page.lines() {
            assert!(
                !line.starts_with("import ") && !line.starts_with("export "),
                "{line}"
            );
        }
        for word in ["src=", "http://", "https://", "fetch("] {
            assert!(!page.contains(word), "{word}");
        }
    }
}

//! Static files of sshjobs' page: HTML, style sheet, icon and script modules.
//!
//! They are in a crate of their own because two faces show them: the HTTP server as files, and the
//! MCP server in one page that a client may show.

/// A constant with the text of each file, and the list of all.
macro_rules! files {
    ($($constant:ident = $name:literal;)*) => {
        $(
            #[doc = concat!("The text of `", $name, "`.")]
            pub const $constant: &str = include_str!($name);
        )*

        /// The name and text of each file.
        pub const FILES: &[(&str, &str)] = &[$(($name, $constant)),*];
    };
}

files! {
    INDEX_HTML = "index.html";
    PAGE_CSS = "page.css";
    ICON_SVG = "icon.svg";
    ICON_WAITS_SVG = "icon_waits.svg";
    MAIN_JS = "main.js";
    API_JS = "api.js";
    DOM_JS = "dom.js";
    FORMAT_JS = "format.js";
    LOGIN_JS = "login.js";
    ADDRESS_JS = "address.js";
    JOB_LIST_JS = "job_list.js";
    JOB_FACTS_JS = "job_facts.js";
    JOB_VIEW_JS = "job_view.js";
    LINE_CACHE_JS = "line_cache.js";
    LOG_VIEW_JS = "log_view.js";
    SCROLL_BAR_JS = "scroll_bar.js";
    STYLED_SPAN_JS = "styled_span.js";
    FINDER_JS = "finder.js";
    MATCHING_LINES_JS = "matching_lines.js";
    FOLDS_JS = "folds.js";
    SCREEN_VIEW_JS = "screen_view.js";
    ACTIONS_JS = "actions.js";
    APPROVALS_JS = "approvals.js";
    CALL_DIFFERENCE_JS = "call_difference.js";
    VISIBLE_JS = "visible.js";
    BAND_JS = "band.js";
    OVERVIEW_JS = "overview.js";
    FLEET_TABLE_JS = "fleet_table.js";
    AUDIT_LOG_JS = "audit_log.js";
    PROCESSES_JS = "processes.js";
    START_FORM_JS = "start_form.js";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_every_file_of_the_folder() {
        for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap() {
            let name = entry.unwrap().file_name();
            let name = name.to_str().unwrap();
            let is_listed = FILES.iter().any(|(listed, _)| *listed == name);
            assert!(is_listed || name == "lib.rs", "{name} is not listed");
        }
    }
}

//! Titles, descriptions and hints of the tools, for models. The parameters are described in `wire/verbs`.

/// A tool's texts and hints.
pub(crate) struct ToolText {
    /// The verb of the tool: its name without `ssh_`.
    pub(crate) verb: &'static str,
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    /// Arguments that are accepted and not shown, because each costs every model tokens.
    pub(crate) hidden: &'static [&'static str],
    /// Its changes can't be undone.
    pub(crate) is_destructive: bool,
    /// A second call with the same arguments changes nothing more.
    pub(crate) is_idempotent: bool,
    /// It may ask a person: for a login, or for an approval.
    pub(crate) reaches_hosts: bool,
}

impl ToolText {
    /// The texts of a verb.
    pub(crate) fn of(verb: &str) -> Option<&'static Self> {
        TOOLS.iter().find(|text| text.verb == verb)
    }
}

const TOOLS: [ToolText; 15] = [
    ToolText {
        verb: "look",
        title: "Look at a host",
        description: "Run a command that only looks (ps, df, ls, cat, grep, journalctl, systemctl \
            status, docker ps, nvidia-smi, git log), without a shell. It changes nothing, so \
            clients can allow it for good. Example: {\"host\": \"web1\", \"argv\": \
            [\"journalctl\", \"-u\", \"nginx\", \"-n\", \"50\"]}",
        hidden: &["max_bytes", "params", "template"],
        is_destructive: false,
        is_idempotent: true,
        reaches_hosts: true,
    },
    ToolText {
        verb: "spawn",
        title: "Start a remote job",
        description: "Start a command on a remote server or VM as a job and return its job_id at \
            once; ssh_wait waits for its end. For builds, deployments, training, \
            services. Without durable=true it ends with this server. Example: {\"host\": \
            \"web1\", \"command\": \"make test\", \"cwd\": \"~/app\"}",
        // The command line has them all.
        hidden: &[
            "after",
            "answer_queries",
            "become_method",
            "canary",
            "cols",
            "env_setup",
            "exclude",
            "interpreter",
            "max_parallel",
            "notify",
            "pack",
            "restart_after_reboot",
            "retry",
            "retry_if",
            "rows",
            "secret_stdin",
            "stop_after_failures",
            "term",
            "warn",
        ],
        is_destructive: true,
        is_idempotent: false,
        reaches_hosts: true,
    },
    ToolText {
        verb: "tail",
        title: "Follow a job's output",
        description: "Read a job's output after a cursor, waiting up to wait_ms for news. Pass \
            last_line_no as the next since_line_no until still_running is false. Example: {\"job_id\": \
            \"web1-7f3k9q2m\", \"since_line_no\": 120, \"wait_ms\": 5000}",
        // A model keeps its cursor. A named one would make a repeated call return something else.
        hidden: &["format", "reader", "render"],
        is_destructive: false,
        is_idempotent: true,
        reaches_hosts: false,
    },
    ToolText {
        verb: "read",
        title: "Read a part of a job's output",
        description: "Read a part of a job's output by position, from the start or (negative \
            offset) the end; use it to look back. Example: {\"job_id\": \"web1-7f3k9q2m\", \
            \"offset\": -20}",
        // `limit` is another name of `length`.
        hidden: &["limit", "render", "max_bytes"],
        is_destructive: false,
        is_idempotent: true,
        reaches_hosts: false,
    },
    ToolText {
        verb: "search",
        title: "Search a job's output",
        description: "Find lines by regex in a job's output, or with host and path in the files and \
            logs of a server; use it instead of reading them all. Example: {\"job_id\": \"web1-7f3k9q2m\", \"pattern\": \
            \"(?i)error\"}",
        hidden: &["max_bytes", "stream"],
        is_destructive: false,
        is_idempotent: true,
        reaches_hosts: false,
    },
    ToolText {
        verb: "wait",
        title: "Wait for jobs",
        description: "Wait for the end of jobs, or with on for a question, silence or line. Returns \
            a summary of each, and the first error of those that failed. Example: \
            {\"job_ids\": [\"web1-7f3k9q2m\"], \"last_lines\": 20}",
        hidden: &["last_lines_of"],
        is_destructive: false,
        is_idempotent: true,
        reaches_hosts: false,
    },
    ToolText {
        verb: "write",
        title: "Write to a job's stdin",
        description: "Write text, bytes or keys to a job's stdin, or close it; use it to answer a \
            prompt. With wait_ms the reply contains the job's output since. Example: {\"job_id\": \
            \"web1-7f3k9q2m\", \"data\": \"yes\", \"newline\": true, \"wait_ms\": 5000}",
        hidden: &["cols", "filter", "keep", "rows"],
        is_destructive: true,
        is_idempotent: false,
        reaches_hosts: true,
    },
    ToolText {
        verb: "run",
        title: "Run a remote command",
        description: "Run a quick command on a remote host (server, machine) and wait for its end: exit status, \
            first and last lines. If it takes longer than wait_ms the job continues, and the \
            reply says how to follow it. Example: {\"host\": \"web1\", \"command\": \"uname -a\"}",
        // It takes them as ssh_spawn does: roll-outs, order, repeated calls, special terminals.
        hidden: &[
            "filter",
            "keep",
            "params",
            "secret_env",
            "template",
            "after",
            "after_ok",
            "answer_queries",
            "become_method",
            "canary",
            "cols",
            "env_setup",
            "durable",
            "exclude",
            "hosts",
            "idempotency_key",
            "interpreter",
            "label",
            "max_parallel",
            "notify",
            "pack",
            "queue",
            "reason",
            "restart",
            "restart_after_reboot",
            "retry",
            "retry_if",
            "rows",
            "secret_stdin",
            "stop_after_failures",
            "term",
            "warn",
        ],
        is_destructive: true,
        is_idempotent: false,
        reaches_hosts: true,
    },
    ToolText {
        verb: "signal",
        title: "Signal a job",
        description: "Signal all processes of a job and report whether they are verified dead; \
            use it to stop a job. Example: {\"job_id\": \"web1-7f3k9q2m\", \"grace_ms\": 3000}",
        hidden: &[],
        is_destructive: true,
        is_idempotent: false,
        reaches_hosts: true,
    },
    ToolText {
        verb: "jobs",
        title: "List jobs",
        description: "List jobs, newest first, with state, times and counts. Example: \
            {\"state\": \"running\"}",
        hidden: &["cached"],
        is_destructive: false,
        is_idempotent: true,
        reaches_hosts: false,
    },
    ToolText {
        verb: "hosts",
        title: "List hosts",
        description: "List the hosts that jobs can run on; call it first when you don't know a \
            name. With host, connect to it and report. Example: {\"host\": \"web1\"}",
        hidden: &[],
        is_destructive: false,
        is_idempotent: true,
        reaches_hosts: true,
    },
    ToolText {
        verb: "get",
        title: "Read a remote file",
        description: "Read a file of a host, or list a directory or pattern; use it to look \
            before a change. Example: {\"host\": \"web1\", \"path\": \"/etc/nginx/nginx.conf\"}",
        hidden: &["become_method"],
        is_destructive: false,
        is_idempotent: true,
        reaches_hosts: true,
    },
    ToolText {
        verb: "put",
        title: "Write a remote file",
        description: "Write a file of a host at once, or replace parts of its text (edits). \
            Example: {\"host\": \"web1\", \"path\": \"app.conf\", \"edits\": [{\"old\": \
            \"port 80\", \"new\": \"port 8080\"}]}",
        hidden: &["backup", "become_method", "in_place"],
        is_destructive: true,
        is_idempotent: true,
        reaches_hosts: true,
    },
    ToolText {
        verb: "forward",
        title: "Forward a port",
        description: "Forward a port of this machine through a host to a target there, or list \
            and close forwards. Example: {\"action\": \"open\", \"host\": \"web1\", \"target\": \
            \"db:5432\"}",
        hidden: &["idle_s"],
        is_destructive: false,
        is_idempotent: false,
        reaches_hosts: true,
    },
    ToolText {
        verb: "forget",
        title: "Forget a job",
        description: "Delete a finished job, or only its output, to free memory. A running job is \
            refused unless force kills it. Example: {\"job_id\": \"web1-7f3k9q2m\"}",
        hidden: &[],
        is_destructive: true,
        is_idempotent: false,
        reaches_hosts: false,
    },
];

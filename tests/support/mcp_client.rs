use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use jsonschema::Validator;
use serde_json::{Value, json};

/// The built binary, spoken to over its stdio as an MCP client does.
pub struct McpClient {
    child: Child,
    stdin: Option<ChildStdin>,
    messages: Receiver<Value>,
    next_id: u64,
    /// Responses that came before they were asked for.
    early: Vec<Value>,
    /// Messages that were not responses.
    pub notifications: Vec<Value>,
    /// The output schema of each tool, once requested.
    promised: HashMap<String, Validator>,
}

const PATIENCE: Duration = Duration::from_secs(90);

impl McpClient {
    /// Starts `sshjobs serve` and shakes hands with it.
    pub fn start(ssh_config: &Path) -> Self {
        Self::start_with(ssh_config, Path::new("/dev/null"))
    }

    /// The same with a configuration file.
    pub fn start_with(ssh_config: &Path, config: &Path) -> Self {
        Self::launch(ssh_config, |command| {
            command.arg("--config").arg(config).arg("serve")
        })
    }

    /// The same with options of the program.
    pub fn with_options(ssh_config: &Path, options: &[&str]) -> Self {
        Self::launch(ssh_config, |command| command.args(options).arg("serve"))
    }

    /// The same with options of `serve`.
    pub fn serving(ssh_config: &Path, options: &[&str]) -> Self {
        Self::launch(ssh_config, |command| command.arg("serve").args(options))
    }

    /// The same with everything logged to a file.
    pub fn with_log(ssh_config: &Path, log: &Path) -> Self {
        let log = std::fs::File::create(log).expect("a log file");
        Self::launch(ssh_config, |command| {
            command.args(["--log", "trace", "serve"]).stderr(log)
        })
    }

    /// The same with a configuration file, too.
    pub fn with_config_and_log(ssh_config: &Path, config: &Path, log: &Path) -> Self {
        let log = std::fs::File::create(log).expect("a log file");
        Self::launch(ssh_config, |command| {
            command
                .arg("--config")
                .arg(config)
                .args(["--log", "trace", "serve"])
                .stderr(log)
        })
    }

    /// The same, declaring capabilities of the client.
    pub fn capable(ssh_config: &Path, capabilities: Value) -> Self {
        Self::launch_as(ssh_config, capabilities, |command| command.arg("serve"))
    }

    fn launch(ssh_config: &Path, how: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        Self::launch_as(ssh_config, json!({}), how)
    }

    fn launch_as(
        ssh_config: &Path,
        capabilities: Value,
        how: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sshjobs"));
        command
            .arg("--ssh-config")
            .arg(ssh_config)
            .env("XDG_CONFIG_HOME", ssh_config.with_file_name("no-config"))
            .env("XDG_STATE_HOME", ssh_config.with_file_name("state"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = how(&mut command).spawn().expect("the binary starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let message = serde_json::from_str(&line)
                    .unwrap_or_else(|_| panic!("stdout is the wire: {line:?}"));
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        let mut client = Self {
            child,
            stdin,
            messages,
            next_id: 1,
            early: Vec::new(),
            notifications: Vec::new(),
            promised: HashMap::new(),
        };
        let hello = json!({
            "protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": {"name": "test", "version": "0"}
        });
        let reply = client.request("initialize", hello);
        assert_eq!(reply["result"]["serverInfo"]["name"], "sshjobs", "{reply}");
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn send(&mut self, message: &Value) {
        self.send_text(&message.to_string());
    }

    /// Sends a line, whatever it is.
    pub fn send_text(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        writeln!(stdin, "{line}").expect("the server reads");
    }

    /// Sends a request and returns its id at once.
    pub fn begin(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// The response to the request with this id; others that come first are kept.
    pub fn response(&mut self, id: u64) -> Value {
        if let Some(index) = self.early.iter().position(|message| message["id"] == id) {
            return self.early.swap_remove(index);
        }
        loop {
            let message = self.messages.recv_timeout(PATIENCE).expect("an answer in time");
            if message["id"] == id {
                return message;
            }
            match message["method"].is_string() {
                true => self.notifications.push(message),
                false => self.early.push(message),
            }
        }
    }

    /// The next request or notification of the server with this method; responses that come first
    /// are kept. It may have come before the response to an earlier request.
    pub fn asked(&mut self, method: &str) -> Value {
        if let Some(index) = self.notifications.iter().position(|told| told["method"] == method) {
            return self.notifications.remove(index);
        }
        loop {
            let message = self.messages.recv_timeout(PATIENCE).expect("a request in time");
            match message["method"].as_str() {
                Some(name) if name == method => return message,
                Some(_) => self.notifications.push(message),
                None => self.early.push(message),
            }
        }
    }

    pub fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        self.response(id)
    }

    /// Calls a tool and returns its result, checked against the tool's schemas.
    pub fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let result =
            self.request("tools/call", json!({"name": tool, "arguments": arguments}))["result"]
                .clone();
        self.check(tool, &result);
        result
    }

    fn check(&mut self, tool: &str, result: &Value) {
        if self.promised.is_empty() {
            let listed = self.request("tools/list", json!({}));
            for tool in listed["result"]["tools"].as_array().expect("tools") {
                let schema = jsonschema::validator_for(&tool["outputSchema"]).expect("a schema");
                self.promised.insert(tool["name"].as_str().expect("a name").to_owned(), schema);
            }
            let error = Value::Object(sshjobs_wire::document_schema::<sshjobs_wire::Error>());
            self.promised.insert(
                "error".to_owned(),
                jsonschema::validator_for(&error).expect("a schema"),
            );
        }
        let (schema, value) = match result["isError"] == true {
            true => (&self.promised["error"], &result["_meta"]["sshjobs/error"]),
            false => (&self.promised[tool], &result["structuredContent"]),
        };
        if let Err(error) = schema.validate(value) {
            panic!("{tool} breaks its promise: {error}: {value}");
        }
    }

    /// Calls a tool that must succeed and returns its structured content.
    pub fn ok(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments);
        assert_ne!(result["isError"], true, "{result}");
        result["structuredContent"].clone()
    }

    /// Calls a tool that must fail and returns its error's code.
    pub fn code(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{result}");
        assert!(
            result.get("structuredContent").is_none(),
            "clients check that against the output schema: {result}"
        );
        let error = &result["_meta"]["sshjobs/error"];
        let code = error["code"].as_str().expect("a code").to_owned();
        let text = result["content"][0]["text"].as_str().expect("text");
        assert!(
            text.starts_with(&format!("{code}: "))
                && !error["hint"].as_str().unwrap_or("").is_empty(),
            "{result}"
        );
        code
    }

    /// Closes stdin and waits for the program's end; returns its exit code.
    pub fn close(mut self, within: Duration) -> Option<i32> {
        drop(self.stdin.take());
        let deadline = std::time::Instant::now() + within;
        while std::time::Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the server did not end within {within:?}");
    }
}

impl Drop for McpClient {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

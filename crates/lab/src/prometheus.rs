//! A real Prometheus that scrapes operators.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{Error, Operator, Process, Result, free_address, http, process::start_http, watchdog::TempFolder};

/// Limit for a start, also on a busy machine.
const START_WITHIN: Duration = Duration::from_secs(30);

/// A Prometheus with a folder of its own on a loopback port. It stops when it is dropped.
#[derive(Debug)]
pub struct Prometheus {
    // Declared before the folder: the server must have stopped before its folder is removed.
    process: Process,
    address: SocketAddr,
    folder: TempFolder,
}

/// A range of time in an expression: from, until and step, in seconds since 1970.
#[derive(Debug, Clone, Copy)]
pub struct Range {
    /// The first point.
    pub from: f64,
    /// The last point.
    pub until: f64,
    /// The distance of two points.
    pub step: f64,
}

impl Prometheus {
    /// Starts a server that scrapes once a second the operators of the last [`scrape`](Self::scrape), and that evaluates
    /// the rules in `rules`.
    ///
    /// # Errors
    /// [`Error::Exited`] with its log when it does not accept the rules, or is not installed.
    pub fn start(rules: &Path) -> Result<Self> {
        let started =
            start_http(|| Self::prepare(rules), |server| (&server.process, server.address), "/-/ready", START_WITHIN);
        started.map_err(|error| match error {
            // The exit status of a shell for a missing program.
            Error::Exited { status, .. } if status.code() == Some(127) => {
                Error::MissingTool { tool: "prometheus", path: PathBuf::from("prometheus") }
            }
            other => other,
        })
    }

    fn prepare(rules: &Path) -> Result<Self> {
        let folder = TempFolder::new("prometheus")?;
        let address = free_address()?;
        let rules = fs::canonicalize(rules).map_err(Error::io(format!("find {}", rules.display())))?;
        let file = |name: &str| folder.path().join(name);
        // JSON is YAML.
        let config = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [rules],
            "scrape_configs": [{
                "job_name": "redislease",
                "file_sd_configs": [{"files": [file("targets.json")], "refresh_interval": "1s"}],
            }],
        });
        let write = |name: &str, content: &Value| {
            fs::write(file(name), content.to_string()).map_err(Error::io(format!("write {name} for Prometheus")))
        };
        write("targets.json", &json!([]))?;
        write("prometheus.yml", &config)?;
        let process = Process::new(format!("prometheus {address}"), "prometheus", file("log")).args([
            format!("--config.file={}", file("prometheus.yml").display()),
            format!("--storage.tsdb.path={}", file("data").display()),
            format!("--web.listen-address={address}"),
        ]);
        Ok(Self { process, address, folder })
    }

    /// Scrapes these operators from now on, each with its name as the label `instance`, and with the label `cluster`.
    ///
    /// # Errors
    /// [`Error::Io`] when the list cannot be written.
    pub fn scrape(&self, cluster: &str, operators: &[(&str, &Operator)]) -> Result<()> {
        let group = |(name, operator): &(&str, &Operator)| {
            let address = operator.address()?.to_string();
            Some(json!({"targets": [address], "labels": {"cluster": cluster, "instance": name}}))
        };
        let groups: Vec<Value> = operators.iter().filter_map(group).collect();
        let file = self.folder.path().join("targets.json");
        let new = file.with_extension("new");
        // The file is replaced atomically, so that Prometheus never reads half of it.
        fs::write(&new, Value::from(groups).to_string())
            .and_then(|()| fs::rename(&new, &file))
            .map_err(Error::io("write the targets of Prometheus"))
    }

    /// Waits until it has scraped each of these operators, by name.
    ///
    /// # Errors
    /// [`Error::NotReady`] with those that it has.
    pub fn wait_scraped(&self, names: &[&str], within: Duration) -> Result<()> {
        self.process.wait_until(within, || {
            let up = self.query("up == 1")?;
            let seen: BTreeSet<&str> = up.iter().filter_map(|series| series["metric"]["instance"].as_str()).collect();
            if names.iter().all(|name| seen.contains(name)) { Ok(()) } else { Err(format!("scraped: {seen:?}")) }
        })
    }

    /// Waits until it has scraped its operators this many times more on average, whether they answered or not.
    ///
    /// # Errors
    /// [`Error::NotReady`] with the number of scrapes.
    pub fn wait_scrapes(&self, more: u32, within: Duration) -> Result<()> {
        let count = || {
            let scrapes = self.query("avg(count_over_time(up[1d]))")?;
            let value = scrapes.first().and_then(|series| series["value"][1].as_str()?.parse::<f64>().ok());
            value.ok_or_else(|| format!("no scrapes: {scrapes:?}"))
        };
        let mut before = None;
        self.process.wait_until(within, || {
            let now = count()?;
            let missing = f64::from(more) - (now - *before.get_or_insert(now));
            if missing <= 0.0 { Ok(()) } else { Err(format!("{missing} scrapes are missing")) }
        })
    }

    /// The series of an expression now.
    ///
    /// # Errors
    /// [`Error::Answer`] with Prometheus' message.
    pub fn query(&self, expression: &str) -> Result<Vec<Value>> {
        self.series("/api/v1/query", &[("query", expression)])
    }

    /// The series of an expression at a time.
    ///
    /// # Errors
    /// [`Error::Answer`] with Prometheus' message.
    pub fn query_at(&self, expression: &str, at: f64) -> Result<Vec<Value>> {
        self.series("/api/v1/query", &[("query", expression), ("time", &at.to_string())])
    }

    /// The series of an expression over time.
    ///
    /// # Errors
    /// [`Error::Answer`] with Prometheus' message.
    pub fn query_range(&self, expression: &str, range: Range) -> Result<Vec<Value>> {
        let Range { from, until, step } = range;
        let [from, until, step] = [from, until, step].map(|number| number.to_string());
        let arguments = [("query", expression), ("start", &from), ("end", &until), ("step", &step)];
        self.series("/api/v1/query_range", &arguments)
    }

    /// The values of a label, of all series or of those that a selector names.
    ///
    /// # Errors
    /// [`Error::Answer`] with Prometheus' message.
    pub fn label_values(&self, label: &str, selector: Option<&str>) -> Result<Vec<String>> {
        let arguments: Vec<_> = selector.iter().map(|selector| ("match[]", *selector)).collect();
        let values = self.get(&format!("/api/v1/label/{label}/values"), &arguments)?;
        let values = values.as_array().into_iter().flatten().filter_map(Value::as_str);
        Ok(values.map(str::to_owned).collect())
    }

    /// Name and health of each rule: `ok`, or the error of its last evaluation.
    ///
    /// # Errors
    /// [`Error::Answer`] with Prometheus' message.
    pub fn rules(&self) -> Result<BTreeMap<String, String>> {
        let health = |rule: &Value| match text(&rule["lastError"]) {
            error if error.is_empty() => text(&rule["health"]),
            error => error,
        };
        self.of_rules(health)
    }

    /// Name and expression of each rule.
    ///
    /// # Errors
    /// [`Error::Answer`] with Prometheus' message.
    pub fn rule_expressions(&self) -> Result<BTreeMap<String, String>> {
        self.of_rules(|rule| text(&rule["query"]))
    }

    fn of_rules(&self, of: impl Fn(&Value) -> String) -> Result<BTreeMap<String, String>> {
        let rules = self.get("/api/v1/rules", &[])?;
        let groups = rules["groups"].as_array().cloned().unwrap_or_default();
        let rules = groups.iter().flat_map(|group| group["rules"].as_array().into_iter().flatten());
        Ok(rules.map(|rule| (text(&rule["name"]), of(rule))).collect())
    }

    /// Waits until it has evaluated every rule, and returns them as [`rules`](Self::rules) does.
    ///
    /// # Errors
    /// [`Error::NotReady`] with the rules that it has not evaluated.
    pub fn wait_for_rules(&self, within: Duration) -> Result<BTreeMap<String, String>> {
        let mut rules = BTreeMap::new();
        self.process.wait_until(within, || {
            rules = self.rules()?;
            let waiting: Vec<_> = rules.iter().filter(|(_, health)| *health == "unknown").collect();
            if waiting.is_empty() { Ok(()) } else { Err(format!("not evaluated yet: {waiting:?}")) }
        })?;
        Ok(rules)
    }

    fn series(&self, path: &str, arguments: &[(&str, &str)]) -> Result<Vec<Value>> {
        let data = self.get(path, arguments)?;
        Ok(data["result"].as_array().cloned().unwrap_or_default())
    }

    /// The data of an answer.
    fn get(&self, path: &str, arguments: &[(&str, &str)]) -> Result<Value> {
        let encoded: Vec<String> =
            arguments.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
        let failed = |message: String| Error::Answer { url: format!("{path} {arguments:?}"), message };
        let (code, page) = http::get(self.address, &format!("{path}?{}", encoded.join("&")))
            .map_err(|error| failed(error.to_string()))?;
        let answer: Value = serde_json::from_str(&page).map_err(|error| failed(format!("{code}: {error}: {page}")))?;
        match answer["error"].as_str() {
            Some(error) => Err(failed(error.to_owned())),
            None => Ok(answer["data"].clone()),
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// As in the query of an URL.
fn encode(text: &str) -> String {
    let encode = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::encode;

    #[test]
    fn expressions_fit_into_an_address() {
        assert_eq!(encode(r#"up{a="b"} > 0"#), "up%7Ba%3D%22b%22%7D%20%3E%200");
    }
}

use super::*;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn logged(format: LogFormat, level: &str) -> String {
    let options = LogOptions { log_format: format, log_level: level.into() };
    let paper = Paper::default();
    let writer = paper.clone();
    let subscriber = options.subscriber(move || writer.clone()).unwrap();
    tracing::subscriber::with_default(subscriber, || {
        tracing::info!(lease = "billing", "held");
        tracing::debug!("details");
    });
    let bytes = paper.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_line_of_text_names_level_message_and_fields() {
    let log = logged(LogFormat::Text, "info");
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.contains(" INFO ") && log.contains("held lease=\"billing\""), "{log}");
}

#[test]
fn a_line_of_json_is_one_object() {
    let log = logged(LogFormat::Json, "debug");
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{log}");
    assert_eq!(lines[0]["level"], "INFO");
    assert_eq!(lines[0]["message"], "held");
    assert_eq!(lines[0]["lease"], "billing");
    assert_eq!(lines[1]["message"], "details");
}

#[test]
fn the_filter_may_name_a_module() {
    assert_eq!(logged(LogFormat::Text, "warn"), "");
    assert_eq!(logged(LogFormat::Text, "warn,redislease::telemetry=debug").lines().count(), 2);
}

#[test]
fn a_filter_that_cannot_be_read_is_named() {
    let options = LogOptions { log_format: LogFormat::Text, log_level: "info,redislease=loud".into() };
    let error = options.start().expect_err("loud is no level").to_string();
    assert!(error.starts_with("--log-level \"info,redislease=loud\" is no filter ("), "{error}");
    assert!(error.contains("error, warn, info, debug, trace"), "{error}");
}

#[test]
fn a_misspelt_level_is_refused_and_does_not_silence_the_rest() {
    for given in ["inof", "info,nodes", "loud,redislease=debug"] {
        let options = LogOptions { log_format: LogFormat::Text, log_level: given.into() };
        let error = options.subscriber(io::sink).err().expect("no level").to_string();
        assert!(error.starts_with(&format!("--log-level {given:?}: ")) && error.contains("is no level"), "{error}");
    }
    assert_eq!(logged(LogFormat::Text, "").lines().count(), 1, "nothing said is the default");
}

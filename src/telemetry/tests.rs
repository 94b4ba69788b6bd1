use super::*;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn logged(format: LogFormat, level: &str) -> String {
    let options = LogOptions { log_format: format, log_level: level.into() };
    let buffer = Buffer::default();
    let writer = buffer.clone();
    let subscriber = options.subscriber(move || writer.clone()).unwrap();
    tracing::subscriber::with_default(subscriber, || {
        tracing::info!(lease = "billing", "held");
        tracing::debug!("details");
    });
    let bytes = buffer.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn text_line_has_level_message_and_fields() {
    let log = logged(LogFormat::Text, "info");
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.contains(" INFO ") && log.contains("held lease=\"billing\""), "{log}");
}

#[test]
fn json_line_is_one_object() {
    let log = logged(LogFormat::Json, "debug");
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{log}");
    assert_eq!(lines[0]["level"], "INFO");
    assert_eq!(lines[0]["message"], "held");
    assert_eq!(lines[0]["lease"], "billing");
    assert_eq!(lines[1]["message"], "details");
}

#[test]
fn filter_can_name_a_module() {
    assert_eq!(logged(LogFormat::Text, "warn"), "");
    assert_eq!(logged(LogFormat::Text, "warn,redislease::telemetry=debug").lines().count(), 2);
}

#[test]
fn invalid_filter_is_named_in_the_error() {
    let options = LogOptions { log_format: LogFormat::Text, log_level: "info,redislease=loud".into() };
    let error = options.start().expect_err("loud is not a level");
    assert!(error.starts_with("--log-level \"info,redislease=loud\" is not a valid filter ("), "{error}");
    assert!(error.contains("error, warn, info, debug, trace, off"), "{error}");
}

#[test]
fn misspelt_level_is_rejected() {
    for given in ["inof", "info,nodes", "loud,redislease=debug"] {
        let options = LogOptions { log_format: LogFormat::Text, log_level: given.into() };
        let error = options.subscriber(io::sink).err().expect("an invalid level");
        assert!(error.starts_with(&format!("--log-level {given:?}: ")) && error.contains("is not a level"), "{error}");
    }
    assert_eq!(logged(LogFormat::Text, "").lines().count(), 1, "an empty filter is the default");
}

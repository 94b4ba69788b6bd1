//! The values of the client library as those that the readers of replies know.

use redis::{RedisError, Value as Raw};
use redislease_core::wire::replies::Value;

/// Converts a reply without copying its texts. The errors in the place of answers are added to `errors`.
pub fn value(raw: Raw, errors: &mut Vec<RedisError>) -> Value {
    match raw {
        Raw::Nil => Value::Nil,
        Raw::Int(number) => Value::Int(number),
        Raw::BulkString(bytes) => Value::Text(bytes),
        // The same memory is used for the values.
        Raw::Array(values) => Value::List(values.into_iter().map(|raw| value(raw, errors)).collect()),
        Raw::ServerError(error) => {
            errors.push(error.into());
            Value::Error
        }
        other => Value::Other(format!("{other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_in_a_reply_are_kept_apart() {
        let raw = redis::parse_redis_value(b"*4\r\n:1\r\n-OOM no\r\n*2\r\n$2\r\nab\r\n$-1\r\n+PONG\r\n").unwrap();
        let mut errors = Vec::new();
        let inner = Value::List(vec![Value::Text(b"ab".to_vec()), Value::Nil]);
        let other = Value::Other(format!("{:?}", Raw::SimpleString("PONG".to_owned())));
        assert_eq!(value(raw, &mut errors), Value::List(vec![Value::Int(1), Value::Error, inner, other]));
        assert_eq!(errors.iter().map(RedisError::code).collect::<Vec<_>>(), [Some("OOM")]);
    }
}

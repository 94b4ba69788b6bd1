//! Reads replies in RESP, the protocol of Redis.

use redis::{RedisError, RedisResult, Value};

/// The deepest list in a reply that is accepted. No command of RedisLease returns more than one level.
const DEEPEST: usize = 8;
/// The longest text in a reply that is accepted, in bytes, and the longest list.
const LONGEST: usize = 16 << 20;

/// The first reply in `bytes` and its length; `None` if `bytes` ends before it. An error that the server returns is an
/// `Err` in the reply.
///
/// # Errors
/// `bytes` is not RESP, so the rest of the connection cannot be read.
pub(super) fn read(bytes: &[u8]) -> RedisResult<Option<(RedisResult<Value>, usize)>> {
    let mut reader = Reader { bytes, place: 0 };
    let Some(value) = reader.value(0)? else { return Ok(None) };
    // An error inside of a list is a part of the reply.
    let reply = match value {
        Value::ServerError(error) => Err(error.into()),
        value => Ok(value),
    };
    Ok(Some((reply, reader.place)))
}

fn invalid(what: &'static str) -> RedisError {
    (redis::ErrorKind::Parse, "the reply is not valid", what.to_owned()).into()
}

struct Reader<'a> {
    bytes: &'a [u8],
    place: usize,
}

impl<'a> Reader<'a> {
    /// The rest of the line, without its end.
    fn line(&mut self) -> Option<&'a [u8]> {
        let rest = self.bytes.get(self.place..)?;
        let length = rest.iter().position(|byte| *byte == b'\n')?;
        self.place += length + 1;
        Some(rest[..length].strip_suffix(b"\r").unwrap_or(&rest[..length]))
    }

    fn value(&mut self, depth: usize) -> RedisResult<Option<Value>> {
        if depth > DEEPEST {
            return Err(invalid("lists are nested too deeply"));
        }
        let Some(line) = self.line() else { return Ok(None) };
        let Some((kind, rest)) = line.split_first() else { return Err(invalid("an empty line")) };
        let value = match kind {
            b':' => Value::Int(number(rest)?),
            b'+' if rest == b"OK" => Value::Okay,
            b'+' => Value::SimpleString(String::from_utf8_lossy(rest).into_owned()),
            // Errors are rare, and the client library sorts them.
            b'-' => redis::parse_redis_value(&[line, b"\r\n"].concat())?,
            b'$' => match length(rest)? {
                None => Value::Nil,
                Some(length) => {
                    let end = self.place + length;
                    let Some(text) = self.bytes.get(self.place..end) else { return Ok(None) };
                    match self.bytes.get(end..end + 2) {
                        None => return Ok(None),
                        Some(b"\r\n") => self.place = end + 2,
                        Some(_) => return Err(invalid("a text is longer than announced")),
                    }
                    Value::BulkString(text.to_vec())
                }
            },
            b'*' => match length(rest)? {
                None => Value::Nil,
                Some(length) => {
                    // A reply announces its length before its parts arrive.
                    let mut parts = Vec::with_capacity(length.min(64));
                    for _ in 0..length {
                        let Some(part) = self.value(depth + 1)? else { return Ok(None) };
                        parts.push(part);
                    }
                    Value::Array(parts)
                }
            },
            _ => return Err(invalid("an unknown type")),
        };
        Ok(Some(value))
    }
}

fn number(text: &[u8]) -> RedisResult<i64> {
    let text = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    text.ok_or_else(|| invalid("not a number"))
}

/// `None` for -1, which means that there is no value.
fn length(text: &[u8]) -> RedisResult<Option<usize>> {
    match number(text)? {
        -1 => Ok(None),
        length => match usize::try_from(length) {
            Ok(length) if length <= LONGEST => Ok(Some(length)),
            _ => Err(invalid("an invalid length")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(value: &Value) -> Vec<u8> {
        match value {
            Value::Nil => b"$-1\r\n".to_vec(),
            Value::Int(number) => format!(":{number}\r\n").into_bytes(),
            Value::Okay => b"+OK\r\n".to_vec(),
            Value::SimpleString(text) => format!("+{text}\r\n").into_bytes(),
            Value::BulkString(bytes) => [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat(),
            Value::Array(parts) => {
                let head = format!("*{}\r\n", parts.len()).into_bytes();
                parts.iter().fold(head, |text, part| [text, encoded(part)].concat())
            }
            other => panic!("{other:?}"),
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Nil),
            Just(Value::Okay),
            any::<i64>().prop_map(Value::Int),
            "[a-zA-Z ]{1,20}1".prop_map(Value::SimpleString),
            proptest::collection::vec(any::<u8>(), 0..40).prop_map(Value::BulkString),
        ];
        leaf.prop_recursive(3, 20, 5, |inner| proptest::collection::vec(inner, 0..5).prop_map(Value::Array))
    }

    proptest! {
        #[test]
        fn a_reply_is_read_when_it_is_complete_and_not_before(value in values(), more in proptest::collection::vec(any::<u8>(), 0..9)) {
            let mut bytes = encoded(&value);
            let length = bytes.len();
            for end in 0..length {
                prop_assert!(read(&bytes[..end]).unwrap().is_none(), "{end} of {length} bytes");
            }
            bytes.extend(more);
            let (read, place) = read(&bytes).unwrap().unwrap();
            prop_assert_eq!((read.unwrap(), place), (value, length));
        }

        /// It does not panic, and agrees with the client library wherever both accept a reply.
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'*'), Just(b'$'), Just(b':'), Just(b'1'), Just(b'2'), any::<u8>()], 0..40)) {
            if let (Ok(Some((Ok(ours), _))), Ok(theirs)) = (read(&bytes), redis::parse_redis_value(&bytes)) {
                prop_assert_eq!(ours, theirs);
            }
        }
    }

    #[test]
    fn an_error_of_the_server_is_a_reply() {
        let (reply, length) = read(b"-NOSCRIPT No matching script.\r\n:1\r\n").unwrap().unwrap();
        assert_eq!((reply.unwrap_err().code(), length), (Some("NOSCRIPT"), 31));
    }

    #[test]
    fn what_is_not_resp_is_refused() {
        let deep = b"*1\r\n".repeat(DEEPEST + 2);
        for bytes in [&b"hello\r\n"[..], b"\r\n", b":x\r\n", b"$-2\r\n", b"$3\r\nabcd\r\n", b"*99999999\r\n", &deep] {
            assert!(read(bytes).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
    }
}

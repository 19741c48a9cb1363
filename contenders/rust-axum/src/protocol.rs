use std::time::{SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::{json, Value};

/// The room of messages that name none.
pub const PUBLIC: &str = "public";

/// A request of a client. Fields that the server does not use are not parsed: a
/// chat is passed on as the original text.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Request {
    Join {
        room: Option<String>,
    },
    Chat {
        room: Option<String>,
        #[serde(rename = "text")]
        _text: String,
    },
    Leave {
        room: Option<String>,
    },
    Ping {
        #[serde(default)]
        ts: Value,
    },
    Pong,
}

impl Request {
    /// Returns None for malformed messages and unknown types.
    pub fn parse(text: &str) -> Option<Self> {
        // Serde would also accept an array of the type and the fields.
        let object = text.trim_start().starts_with('{');
        object.then(|| serde_json::from_str(text).ok()).flatten()
    }
}

pub fn ping() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({"type": "ping", "ts": now.as_millis() as u64}).to_string()
}

pub fn pong(ts: Value) -> String {
    json!({"type": "pong", "ts": ts}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_read() {
        let lobby = || Some("lobby".to_string());
        for (text, want) in [
            (r#"{"type":"join","user":"u"}"#, Request::Join { room: None }),
            (r#"{"room":"lobby","type":"join"}"#, Request::Join { room: lobby() }),
            (
                r#"{"type":"chat","text":"hi","x":{}}"#,
                Request::Chat {
                    room: None,
                    _text: "hi".into(),
                },
            ),
            (r#" {"type":"leave","room":null}"#, Request::Leave { room: None }),
            (r#"{"type":"ping","ts":17}"#, Request::Ping { ts: json!(17) }),
            (r#"{"type":"pong","ts":17}"#, Request::Pong),
        ] {
            assert_eq!(Request::parse(text), Some(want), "{text}");
        }
    }

    #[test]
    fn anything_else_is_none() {
        for text in [
            "",
            "chat",
            "null",
            r#"["pong"]"#,
            "{}",
            r#"{"type":"sing"}"#,
            r#"{"type":1}"#,
            r#"{"type":"chat","room":"r"}"#,
            r#"{"type":"chat","text":1}"#,
            r#"{"type":"leave","room":1}"#,
            r#"{"type":"pong"}{}"#,
        ] {
            assert_eq!(Request::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_pong_has_the_ts_of_its_ping() {
        let answer = |text| match Request::parse(text) {
            Some(Request::Ping { ts }) => serde_json::from_str::<Value>(&pong(ts)).unwrap(),
            other => panic!("{text} is {other:?}"),
        };
        assert_eq!(answer(r#"{"type":"ping","ts":1700000000123}"#), json!({"type": "pong", "ts": 1700000000123u64}));
        assert_eq!(answer(r#"{"type":"ping","ts":"x"}"#), json!({"type": "pong", "ts": "x"}));
        assert_eq!(answer(r#"{"type":"ping"}"#), json!({"type": "pong", "ts": null}));
    }
}

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// The room of messages that name none.
const DEFAULT_ROOM: &str = "public";

/// A message of a client, with the fields that the server uses. A chat is
/// passed on as its original bytes, with all other fields.
#[derive(Deserialize)]
pub struct Incoming<'a> {
    #[serde(rename = "type", borrow)]
    pub kind: Cow<'a, str>,
    pub room: Option<String>,
    text: Option<String>,
    #[serde(borrow)]
    ts: Option<&'a RawValue>,
}

impl<'a> Incoming<'a> {
    /// Returns None for everything except a JSON object with a type, and for a
    /// chat without text.
    pub fn parse(text: &'a str) -> Option<Self> {
        if !text.trim_start().starts_with('{') {
            return None; // serde would also accept an array of the fields in their order
        }
        let message: Self = serde_json::from_str(text).ok()?;
        (message.kind != "chat" || message.text.is_some()).then_some(message)
    }

    pub fn room(&self) -> &str {
        self.room.as_deref().unwrap_or(DEFAULT_ROOM)
    }

    /// Whether this is for the room to which everybody may send without joining.
    pub fn is_public(&self) -> bool {
        self.room() == DEFAULT_ROOM
    }

    /// The answer to a ping, with an unchanged copy of its `ts`.
    pub fn pong(&self) -> String {
        format!(r#"{{"type":"pong","ts":{}}}"#, self.ts.map_or("null", RawValue::get))
    }
}

/// The heartbeat, with the time in milliseconds since 1970.
pub fn ping(now_ms: u128) -> String {
    format!(r#"{{"type":"ping","ts":{now_ms}}}"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_type_and_room() {
        let chat = Incoming::parse(r#" {"x":[1],"type":"ch\u0061t","room":"r\"","text":"hi"}"#).unwrap();
        assert_eq!((&*chat.kind, chat.room()), ("chat", "r\""));
        let join = Incoming::parse(r#"{"type":"join","room":null}"#).unwrap();
        assert_eq!((&*join.kind, join.room()), ("join", "public"));
        assert!(join.is_public());
    }

    #[test]
    fn a_pong_has_the_ts_as_it_was_written() {
        for ts in ["1700000000000", "12345678901234567890123", r#"{"a": 1}"#, r#""x""#, "null"] {
            let text = format!(r#"{{"type":"ping","ts":{ts}}}"#);
            let pong = Incoming::parse(&text).unwrap().pong();
            assert_eq!(pong, format!(r#"{{"type":"pong","ts":{ts}}}"#));
        }
        assert_eq!(Incoming::parse(r#"{"type":"ping"}"#).unwrap().pong(), r#"{"type":"pong","ts":null}"#);
    }

    #[test]
    fn what_is_malformed_is_refused() {
        for text in [
            "",
            "{",
            "7",
            "null",
            "[]",
            r#"["chat","public",1]"#,
            "{}",
            r#"{"type":7}"#,
            r#"{"type":"chat","room":"r"}"#,
            r#"{"type":"chat","text":7}"#,
            r#"{"type":"join","room":7}"#,
            r#"{"type":"chat"} x"#,
        ] {
            assert!(Incoming::parse(text).is_none(), "{text:?} was accepted");
        }
    }
}

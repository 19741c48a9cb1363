use std::collections::HashMap;
use std::sync::Mutex;

use tokio::sync::mpsc::{error::TrySendError, Sender};
use tokio_tungstenite::tungstenite::Utf8Bytes;

/// A frame that a connection's writer sends.
#[derive(Debug)]
pub enum Outgoing {
    Chat(Utf8Bytes),
    Answer(String),
    /// A close frame with this code, and nothing after it.
    Close(u16),
}

/// The members of each room, with their queues.
#[derive(Default)]
pub struct Rooms {
    rooms: Mutex<HashMap<String, HashMap<u64, Sender<Outgoing>>>>,
}

impl Rooms {
    pub fn join(&self, room: &str, peer: u64, queue: &Sender<Outgoing>) {
        let mut rooms = self.rooms.lock().unwrap();
        rooms.entry(room.to_string()).or_default().insert(peer, queue.clone());
    }

    pub fn leave<'a>(&self, names: impl IntoIterator<Item = &'a String>, peer: u64) {
        let mut rooms = self.rooms.lock().unwrap();
        for name in names {
            let Some(members) = rooms.get_mut(name) else { continue };
            members.remove(&peer);
            if members.is_empty() {
                rooms.remove(name);
            }
        }
    }

    /// Passes a chat to every other member; all get a room's chats in the same
    /// order. Returns how many members had a full queue.
    pub fn say(&self, room: &str, from: u64, text: &Utf8Bytes) -> u64 {
        let rooms = self.rooms.lock().unwrap();
        let Some(members) = rooms.get(room) else { return 0 };
        members
            .iter()
            .filter(|(&peer, _)| peer != from)
            .filter(|(_, queue)| matches!(queue.try_send(Outgoing::Chat(text.clone())), Err(TrySendError::Full(_))))
            .count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc::{channel, Receiver};

    fn member(rooms: &Rooms, room: &str, peer: u64, capacity: usize) -> Receiver<Outgoing> {
        let (queue, received) = channel(capacity);
        rooms.join(room, peer, &queue);
        received
    }

    fn next(queue: &mut Receiver<Outgoing>) -> Option<String> {
        match queue.try_recv() {
            Ok(Outgoing::Chat(text)) => Some(text.to_string()),
            _ => None,
        }
    }

    #[test]
    fn a_chat_reaches_the_others_of_the_room_only() {
        let rooms = Rooms::default();
        let mut a = member(&rooms, "r", 1, 8);
        let mut b = member(&rooms, "r", 2, 8);
        let mut elsewhere = member(&rooms, "s", 3, 8);
        assert_eq!(rooms.say("r", 1, &"hello".into()), 0);
        assert_eq!(next(&mut b).as_deref(), Some("hello"));
        assert_eq!(next(&mut a), None, "it came back to its sender");
        assert_eq!(next(&mut elsewhere), None, "it left its room");
    }

    #[test]
    fn a_full_queue_loses_the_chat_and_holds_up_nobody() {
        let rooms = Rooms::default();
        let mut slow = member(&rooms, "r", 1, 1);
        let mut quick = member(&rooms, "r", 2, 8);
        assert_eq!(rooms.say("r", 3, &"one".into()), 0);
        assert_eq!(rooms.say("r", 3, &"two".into()), 1);
        assert_eq!((next(&mut slow).as_deref(), next(&mut slow)), (Some("one"), None));
        assert_eq!((next(&mut quick).as_deref(), next(&mut quick).as_deref()), (Some("one"), Some("two")));
    }

    #[test]
    fn a_room_goes_with_its_last_member() {
        let rooms = Rooms::default();
        let _a = member(&rooms, "r", 1, 1);
        let mut b = member(&rooms, "r", 2, 1);
        rooms.leave([&"r".to_string()], 1);
        rooms.say("r", 1, &"still here?".into());
        assert_eq!(next(&mut b).as_deref(), Some("still here?"));
        rooms.leave([&"r".to_string()], 2);
        assert!(rooms.rooms.lock().unwrap().is_empty());
    }
}

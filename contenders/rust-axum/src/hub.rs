use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::broadcast;

/// How many chats a room keeps for members that lag. A member that lags more
/// misses the oldest chats.
const BACKLOG: usize = 1024;

/// A chat on its way to the members of a room.
pub struct Chat {
    pub from: u64,
    pub text: String,
}

/// All rooms, with a broadcast channel for each.
#[derive(Default)]
pub struct Hub {
    rooms: Mutex<HashMap<String, Room>>,
}

struct Room {
    chats: broadcast::Sender<Arc<Chat>>,
    members: usize,
}

impl Hub {
    /// Adds a member to the room and returns the room's channel. The member
    /// must call leave later.
    pub fn join(&self, room: &str) -> broadcast::Sender<Arc<Chat>> {
        let mut rooms = self.rooms.lock().unwrap();
        let room = rooms.entry(room.to_owned()).or_insert_with(|| Room {
            chats: broadcast::Sender::new(BACKLOG),
            members: 0,
        });
        room.members += 1;
        room.chats.clone()
    }

    /// Removes a member. The last one closes the room.
    pub fn leave(&self, name: &str) {
        let mut rooms = self.rooms.lock().unwrap();
        let Some(room) = rooms.get_mut(name) else { return };
        room.members -= 1;
        if room.members == 0 {
            rooms.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::broadcast::error::TryRecvError;

    fn chat(from: u64, text: &str) -> Arc<Chat> {
        Arc::new(Chat { from, text: text.into() })
    }

    #[test]
    fn members_hear_their_room_only() {
        let hub = Hub::default();
        let (a, b, other) = (hub.join("r"), hub.join("r"), hub.join("s"));
        let (mut heard, mut unheard) = (b.subscribe(), other.subscribe());
        assert!(a.send(chat(1, "hello")).is_ok());
        let got = heard.try_recv().expect("nothing arrived");
        assert_eq!((got.from, got.text.as_str()), (1, "hello"));
        assert!(matches!(unheard.try_recv(), Err(TryRecvError::Empty)));
    }

    #[test]
    fn who_lags_misses_the_oldest_and_is_told() {
        let room = Hub::default().join("r");
        let mut slow = room.subscribe();
        for n in 0..BACKLOG + 5 {
            assert!(room.send(chat(1, &n.to_string())).is_ok());
        }
        assert!(matches!(slow.try_recv(), Err(TryRecvError::Lagged(5))));
        assert_eq!(slow.try_recv().expect("nothing is left").text, "5");
    }

    #[test]
    fn the_last_member_closes_the_room() {
        let hub = Hub::default();
        hub.join("r");
        hub.join("r");
        hub.leave("r");
        assert!(hub.rooms.lock().unwrap().contains_key("r"));
        hub.leave("r");
        hub.leave("r");
        assert!(hub.rooms.lock().unwrap().is_empty());
    }
}

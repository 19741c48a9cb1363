use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{close_code, CloseFrame, Message, WebSocket};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio::sync::{broadcast, mpsc};
use tokio::time::{interval_at, timeout, timeout_at, Instant};
use tokio_stream::wrappers::errors::BroadcastStreamRecvError::Lagged;
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::StreamMap;

use crate::hub::Chat;
use crate::limiter::Limiter;
use crate::protocol::{self, Request, PUBLIC};
use crate::App;

/// The number of orders that may wait for the writing half before the reading half waits.
const ORDERS: usize = 64;

const MAX_ROOMS: usize = 100;

/// The longest name of a room, in bytes.
const MAX_NAME: usize = 128;

/// How long a closing handshake may take.
const CLOSING: Duration = Duration::from_secs(1);

/// An order from the reading half of a connection to the writing half.
enum Order {
    Answer(String),
    Listen(String, broadcast::Receiver<Arc<Chat>>),
    Unlisten(String),
    /// Send a close frame with this code, and nothing after it.
    Close(u16),
}

/// Why reading has ended.
enum End {
    /// The client has closed the connection, or it is broken.
    Gone,
    Close(u16),
}

/// Serves one client.
pub async fn run(socket: WebSocket, app: Arc<App>) {
    let id = app.last_id.fetch_add(1, Relaxed);
    app.statistics.opened();
    let (sender, mut receiver) = socket.split();
    let (orders, asked) = mpsc::channel(ORDERS);
    let mut writing = tokio::spawn(write(id, sender, asked, app.clone()));

    let limiter = Limiter::new(app.args.rate_limit, app.args.rate_burst);
    let mut session = Session {
        id,
        app: &app,
        orders,
        limiter,
        rooms: HashMap::new(),
    };
    let end = tokio::select! {
        end = session.read(&mut receiver) => end,
        _ = app.stop.cancelled() => End::Close(close_code::AWAY),
        _ = &mut writing => End::Gone,
    };
    session.leave_all();
    if let End::Close(code) = end {
        let handshake = async {
            let _ = session.orders.send(Order::Close(code)).await;
            while let Some(Ok(_)) = receiver.next().await {}
        };
        let _ = timeout(CLOSING, handshake).await;
    }
    writing.abort();
    app.statistics.closed();
}

/// The reading half of a connection.
struct Session<'a> {
    id: u64,
    app: &'a App,
    orders: mpsc::Sender<Order>,
    limiter: Limiter,
    rooms: HashMap<String, broadcast::Sender<Arc<Chat>>>,
}

impl Session<'_> {
    /// Reads until the connection ends, with a ping at each interval.
    async fn read(&mut self, receiver: &mut SplitStream<WebSocket>) -> End {
        let (every, patience) = (self.app.args.ping_interval(), self.app.args.pong_timeout());
        let mut pings = interval_at(Instant::now() + every, every);
        let mut heard = Instant::now();
        loop {
            let handled = tokio::select! {
                _ = pings.tick() => self.order(Order::Answer(protocol::ping())).await,
                message = timeout_at(heard + patience, receiver.next()) => {
                    heard = Instant::now();
                    match message {
                        Err(_) => Err(End::Close(close_code::NORMAL)), // silent for too long
                        Ok(Some(Ok(Message::Text(text)))) => self.handle(text).await,
                        Ok(Some(Ok(Message::Binary(_)))) => self.ignore(),
                        Ok(Some(Ok(_))) => Ok(()), // axum answers pings and close frames
                        Ok(None | Some(Err(_))) => Err(End::Gone),
                    }
                }
            };
            if let Err(end) = handled {
                return end;
            }
        }
    }

    async fn handle(&mut self, text: String) -> Result<(), End> {
        match Request::parse(&text) {
            Some(Request::Join { room }) => match self.join(room.as_deref().unwrap_or(PUBLIC)).await? {
                true => Ok(()),
                false => self.ignore(),
            },
            Some(Request::Chat { room, .. }) => self.chat(room.as_deref().unwrap_or(PUBLIC), text).await,
            Some(Request::Leave { room }) => self.leave(room).await,
            Some(Request::Ping { ts }) => self.order(Order::Answer(protocol::pong(ts))).await,
            Some(Request::Pong) => Ok(()),
            None => self.ignore(),
        }
    }

    /// Makes the client a member. Returns whether it is one now.
    async fn join(&mut self, room: &str) -> Result<bool, End> {
        if self.rooms.contains_key(room) {
            return Ok(true);
        }
        if self.rooms.len() >= MAX_ROOMS || room.len() > MAX_NAME {
            return Ok(false);
        }
        let chats = self.app.hub.join(room);
        let heard = chats.subscribe();
        self.rooms.insert(room.to_owned(), chats);
        self.order(Order::Listen(room.to_owned(), heard)).await?;
        Ok(true)
    }

    /// Passes a chat on. Anybody may send to the public room, and becomes a member of it.
    async fn chat(&mut self, room: &str, text: String) -> Result<(), End> {
        if room == PUBLIC {
            self.join(room).await?;
        }
        let Some(chats) = self.rooms.get(room) else { return self.ignore() };
        if !self.limiter.allow() {
            self.app.statistics.dropped.fetch_add(1, Relaxed);
            return Ok(());
        }
        self.app.statistics.messages.fetch_add(1, Relaxed);
        let _ = chats.send(Arc::new(Chat { from: self.id, text })); // fails if nobody listens
        Ok(())
    }

    /// Leaves a room, or all rooms. The connection of a client without rooms is closed.
    async fn leave(&mut self, room: Option<String>) -> Result<(), End> {
        match room {
            None => self.leave_all(),
            Some(room) => {
                if self.rooms.remove(&room).is_some() {
                    self.app.hub.leave(&room);
                    self.order(Order::Unlisten(room)).await?;
                }
            }
        }
        match self.rooms.is_empty() {
            true => Err(End::Close(close_code::NORMAL)),
            false => Ok(()),
        }
    }

    fn leave_all(&mut self) {
        for (room, _) in self.rooms.drain() {
            self.app.hub.leave(&room);
        }
    }

    /// Waits until the writing half accepts the order. So the server does not
    /// read from a client that reads no answers, and such a client is closed as
    /// silent in the end.
    async fn order(&self, order: Order) -> Result<(), End> {
        let taken = self.orders.send_timeout(order, self.app.args.pong_timeout()).await;
        taken.map_err(|_| End::Close(close_code::NORMAL))
    }

    fn ignore(&self) -> Result<(), End> {
        self.app.statistics.ignored.fetch_add(1, Relaxed);
        Ok(())
    }
}

/// The writing half of a connection. It receives the chats of its client's rooms.
async fn write(id: u64, mut sender: SplitSink<WebSocket, Message>, mut orders: mpsc::Receiver<Order>, app: Arc<App>) -> Result<(), axum::Error> {
    let mut rooms = StreamMap::new();
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                Some(Order::Answer(text)) => sender.send(Message::Text(text)).await?,
                Some(Order::Listen(room, chats)) => {
                    rooms.insert(room, BroadcastStream::new(chats));
                }
                Some(Order::Unlisten(room)) => {
                    rooms.remove(&room);
                }
                Some(Order::Close(code)) => {
                    let frame = CloseFrame { code, reason: "".into() };
                    return sender.send(Message::Close(Some(frame))).await;
                }
                None => return Ok(()),
            },
            Some((_, chat)) = rooms.next() => match chat {
                Ok(chat) if chat.from == id => {}
                Ok(chat) => {
                    sender.send(Message::Text(chat.text.clone())).await?;
                    app.statistics.deliveries.fetch_add(1, Relaxed);
                }
                Err(Lagged(missed)) => {
                    app.statistics.missed.fetch_add(missed, Relaxed);
                }
            },
        }
    }
}

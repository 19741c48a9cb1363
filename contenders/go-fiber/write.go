package main

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/gofiber/contrib/websocket"
)

const (
	writeTimeout = 10 * time.Second
	closeTimeout = 3 * time.Second // for the client's answer to a Close frame
)

// write sends queued messages, and pings, until the connection ends.
func (m *member) write() {
	defer close(m.broken)
	pings := time.NewTicker(duration(m.chat.settings.PingInterval))
	defer pings.Stop()
	for {
		var err error
		select {
		case text := <-m.outbox:
			err = m.deliver(text)
		case text := <-m.answers:
			err = m.send(text)
		case now := <-pings.C:
			err = m.ping(now)
		case <-m.left:
			m.closeAfterRest(websocket.CloseNormalClosure)
			return
		case <-m.chat.stopping:
			m.closeAfterRest(websocket.CloseGoingAway)
			return
		case <-m.ended:
			return
		}
		if err != nil {
			m.cutOff()
			return
		}
	}
}

func (m *member) send(text []byte) error {
	m.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	return m.conn.WriteMessage(websocket.TextMessage, text)
}

func (m *member) deliver(text []byte) error {
	err := m.send(text)
	if err == nil {
		m.chat.figures.deliveries.Add(1)
	}
	return err
}

func (m *member) ping(now time.Time) error {
	text, err := json.Marshal(event{Type: "ping", TS: strconv.AppendInt(nil, now.UnixMilli(), 10)})
	if err != nil {
		return err
	}
	return m.send(text)
}

// closeAfterRest sends the queued messages and then a Close frame.
func (m *member) closeAfterRest(code int) {
	for {
		var err error
		select {
		case text := <-m.outbox:
			err = m.deliver(text)
		case text := <-m.answers:
			err = m.send(text)
		default:
			m.sendClose(code)
			// The reading goroutine waits for the answer. Do not use conn after
			// that goroutine has returned: the middleware reuses it.
			select {
			case <-m.ended:
			case <-time.After(closeTimeout):
				m.cutOff()
			}
			return
		}
		if err != nil {
			m.cutOff()
			return
		}
	}
}

func (m *member) sendClose(code int) {
	m.closing.Store(true)
	m.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, ""), time.Now().Add(closeTimeout))
}

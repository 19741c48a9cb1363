package main

import (
	"encoding/json"
	"errors"
)

const (
	defaultRoom = "public"
	maxRooms    = 100 // of a connection
	maxName     = 128 // bytes of a room's or user's name
)

// message is a message from a client. A chat is passed on as its original
// bytes, so fields that are missing here are not lost.
type message struct {
	Type string          `json:"type"`
	Room *string         `json:"room"`
	User string          `json:"user"`
	Text *string         `json:"text"`
	TS   json.RawMessage `json:"ts"`
}

func parseMessage(payload []byte) (message, error) {
	var m message
	if err := json.Unmarshal(payload, &m); err != nil {
		return m, err
	}
	if m.Type == "chat" && m.Text == nil {
		return m, errors.New("a chat without text")
	}
	if len(m.room()) > maxName || len(m.User) > maxName {
		return m, errors.New("a name is too long")
	}
	return m, nil
}

func (m message) room() string {
	if m.Room == nil {
		return defaultRoom
	}
	return *m.Room
}

package certs

import (
	"net"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// dnsServer answers every question for an address with 127.0.0.1, and returns
// its own address.
func dnsServer(t *testing.T) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { conn.Close(); <-done })
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if answer, err := answerDNS(buf[:n]); err == nil {
				conn.WriteTo(answer, from)
			}
		}
	}()
	return conn.LocalAddr().String()
}

func answerDNS(question []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil {
		return nil, err
	}
	m.Response, m.RecursionAvailable = true, true
	m.Additionals = nil
	for _, q := range m.Questions {
		if q.Type == dnsmessage.TypeA {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1}, Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}},
			})
		}
	}
	return m.Pack()
}

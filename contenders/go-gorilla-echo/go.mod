module github.com/tidewire/tidewire/contenders/go-gorilla-echo

go 1.26

require github.com/gorilla/websocket v1.5.3

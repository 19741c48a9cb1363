package wsproxy

import (
	"encoding/json"
	"net"
	"net/http"
)

// Control returns the handler by which other programs steer a Proxy. Errors are one line of text with status 400.
//
//	POST   /rules    adds a Rule, the body
//	DELETE /rules    Clear
//	POST   /cut      Cut
//	POST   /refuse   Refuse; ?on=false accepts connections again
//	PUT    /target   SetTarget, ?address=127.0.0.1:8080
//	GET    /state    State
func (p *Proxy) Control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /rules", p.postRule)
	mux.HandleFunc("DELETE /rules", func(w http.ResponseWriter, _ *http.Request) { p.Clear(); w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("POST /cut", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, map[string]int{"cut": p.Cut()}) })
	mux.HandleFunc("POST /refuse", func(w http.ResponseWriter, r *http.Request) {
		p.Refuse(r.FormValue("on") != "false")
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("PUT /target", func(w http.ResponseWriter, r *http.Request) {
		address := r.FormValue("address")
		if _, _, err := net.SplitHostPort(address); err != nil {
			http.Error(w, "address: want HOST:PORT in the URL, as in /target?address=127.0.0.1:8080", http.StatusBadRequest)
			return
		}
		p.SetTarget(address)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, p.State()) })
	return mux
}

func (p *Proxy) postRule(w http.ResponseWriter, r *http.Request) {
	var rule Rule
	in := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10))
	in.DisallowUnknownFields()
	err := in.Decode(&rule)
	if err == nil {
		err = p.Add(rule)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(value)
}

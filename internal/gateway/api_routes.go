package gateway

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/wire/spec"
)

// route is what serves a path, and the right that it needs. If need is nil, the handler checks rights itself: they depend on the body,
// or on the objects that exist.
type route struct {
	handle func(*call)
	need   func(*http.Request) need
}

// accepted is what a route accepts: parameters of the URL, and a body or none.
type accepted struct {
	parameters []string
	body       bool
}

// acceptedBy is what routes accept, by their patterns.
var acceptedBy = sync.OnceValue(func() map[string]accepted {
	all := make(map[string]accepted)
	for _, r := range spec.Routes() {
		one := accepted{body: r.Body != nil || r.Raw}
		for _, f := range r.Query {
			one.parameters = append(one.parameters, f.Name)
		}
		all[r.Pattern()] = one
	}
	return all
})

// refusesBody refuses a call with a body that has fields, if its route accepts none. Bodies of GET and DELETE have no meaning in HTTP, and are not read.
func (c *call) refusesBody(a accepted) bool {
	if a.body || c.r.ContentLength == 0 || c.r.Method == http.MethodGet || c.r.Method == http.MethodDelete {
		return false
	}
	return !c.readStrict(&struct{}{})
}

// unknownParameter returns why the query of a URL is not one of a request with these parameters. A misspelled one is refused, as a
// misspelled field is.
func unknownParameter(query url.Values, parameters []string) *problem {
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if slices.Contains(parameters, name) {
			continue
		}
		want := "none"
		if len(parameters) > 0 {
			want = strings.Join(parameters, ", ")
		}
		return &problem{code: codeParameter, text: fmt.Sprintf("%.64q: the URL of this request has no such parameter: want %s", name, want)}
	}
	return nil
}

// needing returns the right that a route needs, for the object that a part of its path names.
func needing(v auth.Verb, kind auth.Kind, part string) func(*http.Request) need {
	return func(r *http.Request) need { return need{v, kind, r.PathValue(part)} }
}

func onStream(v auth.Verb) func(*http.Request) need { return needing(v, auth.Stream, "stream") }
func onQueue(v auth.Verb) func(*http.Request) need  { return needing(v, auth.Queue, "queue") }
func onStore(v auth.Verb) func(*http.Request) need  { return needing(v, auth.Events, "store") }

// routes are all paths under /v1/.
func routes() map[string]route {
	all := map[string]route{
		"GET /v1/nodes":    {(*call).listNodes, func(*http.Request) need { return needMetrics }},
		"GET /v1/overview": {(*call).overview, func(*http.Request) need { return needMetrics }},
	}
	for _, some := range []map[string]route{streamRoutes(), queueRoutes(), deadRoutes(), eventRoutes(), scheduleRoutes(), roomRoutes(), accessRoutes(), connectionRoutes(), keyRoutes(), benchRoutes()} {
		maps.Copy(all, some)
	}
	return all
}

func streamRoutes() map[string]route {
	return map[string]route{
		"GET /v1/streams":                                 {(*call).listStreams, nil},
		"POST /v1/streams/{stream}":                       {(*call).createStream, onStream("admin")},
		"GET /v1/streams/{stream}":                        {(*call).streamInfo, onStream("read")},
		"DELETE /v1/streams/{stream}":                     {(*call).dropStream, onStream("admin")},
		"POST /v1/streams/{stream}/messages":              {(*call).publish, onStream("publish")},
		"GET /v1/streams/{stream}/messages":               {(*call).readStream, onStream("read")},
		"GET /v1/streams/{stream}/search":                 {(*call).searchStream, onStream("read")},
		"POST /v1/streams/{stream}/replay":                {(*call).replayStream, onStream("read")},
		"GET /v1/streams/{stream}/jobs":                   {(*call).listJobs, onStream("read")},
		"GET /v1/streams/{stream}/jobs/{job}":             {(*call).showJob, onStream("read")},
		"DELETE /v1/streams/{stream}/jobs/{job}":          {(*call).stopJob, onStream("read")},
		"GET /v1/streams/{stream}/follow":                 {(*call).followStream, onStream("read")},
		"GET /v1/streams/{stream}/retention":              {(*call).retention, onStream("read")},
		"PUT /v1/streams/{stream}/retention":              {(*call).setRetention, onStream("admin")},
		"GET /v1/streams/{stream}/groups":                 {(*call).listGroups, onStream("read")},
		"DELETE /v1/streams/{stream}/groups/{group}":      {(*call).dropGroup, onStream("admin")},
		"POST /v1/streams/{stream}/groups/{group}/commit": {(*call).commit, onStream("commit")},
		"POST /v1/streams/{stream}/groups/{group}/seek":   {(*call).seekGroup, onStream("admin")},
	}
}

func queueRoutes() map[string]route {
	return map[string]route{
		"GET /v1/queues":                   {(*call).listQueues, nil},
		"POST /v1/queues/{queue}":          {(*call).createQueue, onQueue("admin")},
		"GET /v1/queues/{queue}":           {(*call).queueStats, onQueue("inspect")},
		"DELETE /v1/queues/{queue}":        {(*call).dropQueue, onQueue("admin")},
		"GET /v1/queues/{queue}/options":   {(*call).queueOptions, onQueue("inspect")},
		"PATCH /v1/queues/{queue}/options": {(*call).alterQueue, onQueue("admin")},
		"GET /v1/queues/{queue}/consumers": {(*call).listConsumers, onQueue("inspect")},
		"POST /v1/queues/{queue}/pause":    {(*call).pauseQueue, onQueue("admin")},
		"POST /v1/queues/{queue}/resume":   {(*call).resumeQueue, onQueue("admin")},
		"POST /v1/queues/{queue}/purge":    {(*call).purgeQueue, onQueue("admin")},
		"POST /v1/queues/{queue}/messages": {(*call).enqueue, onQueue("enqueue")},
		"GET /v1/queues/{queue}/messages":  {(*call).peekQueue, onQueue("inspect")},
		"POST /v1/queues/{queue}/receive":  {(*call).receive, onQueue("consume")},
		"POST /v1/queues/{queue}/ack":      {func(c *call) { c.settle("ack") }, onQueue("consume")},
		"POST /v1/queues/{queue}/nack":     {func(c *call) { c.settle("nack") }, onQueue("consume")},
		"POST /v1/queues/{queue}/extend":   {func(c *call) { c.settle("extend") }, onQueue("consume")},
	}
}

// deadRoutes are those of dead letters, and of the jobs that redrive or purge many of them.
func deadRoutes() map[string]route {
	return map[string]route{
		"GET /v1/queues/{queue}/dead":                     {(*call).listDead, onQueue("inspect")},
		"POST /v1/queues/{queue}/dead/redrive":            {func(c *call) { c.changeDead(redriveDead) }, onQueue("admin")},
		"POST /v1/queues/{queue}/dead/purge":              {func(c *call) { c.changeDead(purgeDead) }, onQueue("admin")},
		"POST /v1/queues/{queue}/dead/{position}/replace": {(*call).replaceDead, onQueue("admin")},
		"GET /v1/queues/{queue}/jobs":                     {(*call).listJobs, onQueue("inspect")},
		"GET /v1/queues/{queue}/jobs/{job}":               {(*call).showJob, onQueue("inspect")},
		"DELETE /v1/queues/{queue}/jobs/{job}":            {(*call).stopJob, onQueue("admin")},
	}
}

func eventRoutes() map[string]route {
	return map[string]route{
		"GET /v1/events/follow":            {(*call).followEvents, nil},
		"GET /v1/events":                   {(*call).readEvents, nil},
		"POST /v1/events":                  {(*call).appendEvents, nil},
		"POST /v1/events/query":            {(*call).queryEvents, nil},
		"POST /v1/events/project":          {(*call).project, nil},
		"GET /v1/events/types":             {(*call).listTypes, nil},
		"GET /v1/events/stores":            {(*call).listStores, nil},
		"POST /v1/events/stores/{store}":   {(*call).createStore, onStore("admin")},
		"GET /v1/events/stores/{store}":    {(*call).storeInfo, onStore("admin")},
		"DELETE /v1/events/stores/{store}": {(*call).dropStore, onStore("admin")},
	}
}

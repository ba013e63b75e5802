package statsmetrics

import (
	"context"
	"net/http"
	"sync"

	"github.com/kubeletkit/kubeletkit/internal/nodenet"
	"github.com/kubeletkit/kubeletkit/node/stats"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Reader reads the usage. A *stats.Collector implements it.
type Reader interface {
	Read(ctx context.Context) (*stats.Reading, error)
	Extra() []runtime.MetricFamily
}

// Resource returns a handler of /metrics/resource, with the usage of a [stats.Collector].
func Resource(collector Reader) http.Handler {
	return &readingPage{reader: collector,
		encode: func(r *stats.Reading, _ []runtime.MetricFamily) []byte { return resource(r) }}
}

// CadvisorOptions are the options of [Cadvisor]. The zero value is valid.
type CadvisorOptions struct {
	// OOMEvents returns how often the memory limit of a cgroup was reached so that a process was killed; of "/", how
	// often the machine was out of memory. The method Events of an *oom.Watcher of node/oom does. If nil,
	// container_oom_events_total is that of the runtime, if it has one.
	OOMEvents func(cgroup string) uint64
}

// Cadvisor returns a handler of /metrics/cadvisor. CPU, memory, network and pressure are those
// of the reading. The metrics that a runtime has beyond these (KEP-2371) are the last ones that
// were read, with their time: some runtimes take seconds for them.
func Cadvisor(collector Reader, opts CadvisorOptions) http.Handler {
	return &readingPage{reader: collector, extra: collector.Extra, encode: newCadvisorPage(opts).encode}
}

// readingPage is a page that is encoded once for a reading.
type readingPage struct {
	reader Reader
	extra  func() []runtime.MetricFamily // nil if the page has no further metrics
	encode func(*stats.Reading, []runtime.MetricFamily) []byte
	bodies nodenet.Bodies

	mu   sync.Mutex
	last *stats.Reading
	with []runtime.MetricFamily
	body *nodenet.Body
}

// ServeHTTP answers a request. Until the usage is read, it waits at most as long as the client.
func (p *readingPage) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r, err := p.reader.Read(req.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	p.of(r).ServeHTTP(w, req)
}

func (p *readingPage) of(r *stats.Reading) *nodenet.Body {
	var families []runtime.MetricFamily
	if p.extra != nil {
		families = p.extra()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last != r || !same(families, p.with) {
		p.body = p.bodies.New(contentType, p.encode(r, families))
		p.last, p.with = r, families
	}
	return p.body
}

// same reports whether two slices are one and the same: their reader has read nothing in between.
func same[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
